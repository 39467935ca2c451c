__thread int counter = 100;
__thread char text[8] = "clay";
int bump(void) { return ++counter; }
int *counter_address(void) { return &counter; }
