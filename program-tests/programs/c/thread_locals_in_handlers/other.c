__thread volatile long ticks_elsewhere;
