struct Call;
using Step = int(Call *);
struct Call {
  Step **steps;
  int depth;
};
