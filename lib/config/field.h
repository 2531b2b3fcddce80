// What a visitor gives back for a field, and the kinds of fields there are. Owners of options never include this; they
// write, in their own namespace,
//
//   template <class Visitor>
//   void describe(Visitor& v, AdamWOptions& o) {
//     v.field("learning_rate", o.learning_rate, "peak learning rate").positive();
//     v.field("betas", o.betas, "decay of the moments").has_size(2).range(0.0, 1.0);
//   }
//
// and every visitor (reader, writer, schema) understands the same rules. Rules on a list or an optional apply to each
// value in it. A rule's text completes "must be ...". describe() must list the same fields whatever the values are.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "config/scalar.h"

namespace longhaul::config {

template <class T>
concept ScalarOption = std::same_as<T, bool> || std::same_as<T, int> || std::same_as<T, int64_t> || std::same_as<T, float> ||
                       std::same_as<T, double> || std::same_as<T, std::string> || NamedEnum<T>;

template <class T>
class Field;
template <class T>
struct Overlay;

// Stands for any visitor where the question is only "does this type have a describe()?".
struct ProbeVisitor {
  template <class T>
  Field<T> field(std::string_view key, T& value, std::string_view help);
};

template <class T>
concept SectionOption = std::is_class_v<T> && std::default_initializable<T> &&
                        requires(ProbeVisitor& visitor, T& options) { describe(visitor, options); };

enum class FieldKind { Scalar, Section, List, Optional, Overlay };

template <class T>
struct FieldTraits {
  static constexpr FieldKind kKind = SectionOption<T> ? FieldKind::Section : FieldKind::Scalar;
  static_assert(SectionOption<T> || ScalarOption<T>, "an option is a bool, int, int64_t, float, double, std::string, an enum "
                "with enum_names(), a struct with describe(), or a std::vector or std::optional of these");
};
template <class T>
struct FieldTraits<std::vector<T>> {
  static constexpr FieldKind kKind = FieldKind::List;
  static_assert(!std::same_as<T, bool>, "std::vector<bool> has no references to its entries");
  static_assert(FieldTraits<T>::kKind == FieldKind::Section || FieldTraits<T>::kKind == FieldKind::Scalar,
                "a list holds scalars or sections");
};
template <class T>
struct FieldTraits<std::optional<T>> {
  static constexpr FieldKind kKind = FieldKind::Optional;
  static_assert(FieldTraits<T>::kKind != FieldKind::Optional && FieldTraits<T>::kKind != FieldKind::Overlay);
};
template <class T>
struct FieldTraits<Overlay<T>> {
  static constexpr FieldKind kKind = FieldKind::Overlay;
};

template <class T>
inline constexpr FieldKind kFieldKind = FieldTraits<T>::kKind;

// The scalar that rules look at: T, or that of the list or optional around it.
template <class T>
struct RuleScalar {
  using Type = T;
};
template <class T>
struct RuleScalar<std::vector<T>> : RuleScalar<T> {};
template <class T>
struct RuleScalar<std::optional<T>> : RuleScalar<T> {};

template <class T, class F>
void for_each_scalar(const T& value, const std::string& suffix, F&& f) {
  if constexpr (kFieldKind<T> == FieldKind::List) {
    for (std::size_t i = 0; i < value.size(); ++i) {
      for_each_scalar(value[i], join_key(suffix, std::to_string(i)), f);
    }
  } else if constexpr (kFieldKind<T> == FieldKind::Optional) {
    if (value) {
      for_each_scalar(*value, suffix, f);
    }
  } else {
    f(suffix, value);
  }
}

struct Violation {
  std::string suffix;  // the index in a list, or empty
  std::string got;
};

// What the rules of a field are reported to; `field` is the number that the visitor gave the field.
class RuleSink {
 public:
  virtual void on_rule(int64_t field, std::string_view rule, std::span<const Violation> violations) = 0;
  virtual void on_required(int64_t field) = 0;

 protected:
  ~RuleSink() = default;
};

template <class T>
class Field {
 public:
  using Scalar = typename RuleScalar<T>::Type;

  Field(RuleSink* sink, int64_t index, const T& value) : sink_(sink), index_(index), value_(&value) {}

  // The key must be written in the recipe (not in an overlay, which changes what it names and keeps the rest).
  Field& required() {
    if (sink_ != nullptr) {
      sink_->on_required(index_);
    }
    return *this;
  }

  Field& positive() {
    return satisfies("> 0", [](const Scalar& x) { return x > Scalar{0}; });
  }
  Field& non_negative() { return at_least(Scalar{0}); }
  Field& at_least(Scalar low) {
    return satisfies(">= " + show_scalar(low), [&](const Scalar& x) { return x >= low; });
  }
  Field& at_most(Scalar high) {
    return satisfies("<= " + show_scalar(high), [&](const Scalar& x) { return x <= high; });
  }
  Field& greater_than(Scalar low) {
    return satisfies("> " + show_scalar(low), [&](const Scalar& x) { return x > low; });
  }
  Field& less_than(Scalar high) {
    return satisfies("< " + show_scalar(high), [&](const Scalar& x) { return x < high; });
  }
  // Both ends are allowed.
  Field& range(Scalar low, Scalar high) {
    return satisfies("between " + show_scalar(low) + " and " + show_scalar(high),
                     [&](const Scalar& x) { return low <= x && x <= high; });
  }
  Field& multiple_of(Scalar divisor)
    requires std::integral<Scalar>
  {
    return satisfies("a multiple of " + show_scalar(divisor), [&](const Scalar& x) { return x % divisor == 0; });
  }
  Field& one_of(std::initializer_list<Scalar> choices) {
    std::string text;
    for (const Scalar& choice : choices) {
      text += (text.empty() ? "one of " : ", ") + emit_inline(write_scalar(choice));
    }
    return satisfies(text, [&](const Scalar& x) { return std::ranges::find(choices, x) != choices.end(); });
  }
  // Any other rule on each value: satisfies("a power of two", [](int64_t n) { ... }).
  template <class Predicate>
  Field& satisfies(std::string_view rule, Predicate&& holds) {
    if (sink_ != nullptr) {
      std::vector<Violation> violations;
      for_each_scalar(*value_, "", [&](const std::string& suffix, const Scalar& x) {
        if (!holds(x)) {
          violations.push_back({suffix, show_scalar(x)});
        }
      });
      sink_->on_rule(index_, rule, violations);
    }
    return *this;
  }

  // Rules on a text or a list as a whole.
  Field& not_empty()
    requires requires(const T& value) { value.empty(); }
  {
    return whole("non-empty", !value_->empty(), "nothing");
  }
  Field& has_size(int64_t size)
    requires(kFieldKind<T> == FieldKind::List)
  {
    const auto got = static_cast<int64_t>(value_->size());
    return whole("a list of " + std::to_string(size) + " entries", got == size, std::to_string(got));
  }

 private:
  Field& whole(std::string_view rule, bool holds, std::string got) {
    if (sink_ != nullptr) {
      const Violation violation{.suffix = {}, .got = std::move(got)};
      sink_->on_rule(index_, rule, std::span(&violation, holds ? 0 : 1));
    }
    return *this;
  }

  RuleSink* sink_;
  int64_t index_;
  const T* value_;
};

}  // namespace longhaul::config
