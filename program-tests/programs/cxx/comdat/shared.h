#include <cstdio>
#include <string>
#include <typeinfo>

inline int counted() {
  static int count;
  return ++count;
}
struct Inline {
  Inline() : value(10) { constructed++; }
  int value;
  static inline int constructed = 0;
};
inline Inline variable;
template <class T> struct Holder { static T value; };
template <class T> T Holder<T>::value{};
template <class T> const void *local() {
  static T object{};
  return &object;
}
template <class T> T twice(T x) { return x + x; }
inline auto make_lambda() { return [] { return 1; }; }
struct Abstract {
  virtual ~Abstract() = default;
  virtual int number() const { return 7; }
};
struct Concrete : Abstract {};
struct Addresses {
  const void *function, *variable, *instance, *member, *local, *type;
  const std::type_info *lambda;
};
static inline Addresses addresses() {
  return {reinterpret_cast<const void *>(&counted), &variable, reinterpret_cast<const void *>(&twice<double>), &Holder<int>::value,
          local<long>(), &typeid(Holder<int>), &typeid(decltype(make_lambda()))};
}
const Addresses &elsewhere();
void counted_elsewhere();
int through_vtable(const Abstract &object);
std::string empty_elsewhere();
