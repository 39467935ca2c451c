int number = 5;
