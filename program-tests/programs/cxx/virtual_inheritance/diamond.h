#include <cstdio>

struct Top {
  Top();
  virtual ~Top();
  virtual int get() { return value; }
  virtual const char *name() { return "top"; }
  virtual Top *clone();
  int value = 0;
  const char *seen_by_top;
};
struct Left : virtual Top {
  Left();
  ~Left() override;
  const char *seen_by_left;
};
struct Right : virtual Top {
  Right();
  ~Right() override;
  int extra = 11;
};
struct Bottom : Left, Right {
  Bottom();
  ~Bottom() override;
  const char *name() override { return "bottom"; }
  Bottom *clone() override;
};
void destroy(Top *top);
