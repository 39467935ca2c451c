char elsewhere[1ul << 30];
