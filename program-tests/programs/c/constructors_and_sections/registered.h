void say(const char *text);
