#include "diamond.h"

Top::Top() : seen_by_top(name()) { std::printf("Top"); }
Top::~Top() { std::printf(" ~Top\n"); }
Top *Top::clone() { return this; }
Left::Left() : seen_by_left(name()) { std::printf(" Left"); }
Left::~Left() { std::printf(" ~Left"); }
Right::Right() { std::printf(" Right"); }
Right::~Right() { std::printf(" ~Right"); }
void destroy(Top *top) { delete top; }
