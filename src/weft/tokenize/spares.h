// Memory of workers, lent to one call at a time and kept for the next.
#pragma once
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace weft {

// Gives up the memory of a list that had more than `most` elements. (`list = {}` keeps it.)
template <class T>
void give_up_above(size_t most, std::vector<T>& list) {
  if (list.capacity() > most) list = std::vector<T>();
}

// As many as were ever lent at once. Any thread may borrow; it must outlive its loans.
template <class T>
class Spares {
 public:
  class Loan {
   public:
    Loan(const Spares& spares, std::unique_ptr<T> one) : spares_(spares), one_(std::move(one)) {}
    ~Loan() { spares_.take_back(std::move(one_)); }
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    T& operator*() const { return *one_; }
    T* operator->() const { return one_.get(); }

   private:
    const Spares& spares_;
    std::unique_ptr<T> one_;
  };

  Loan borrow() const {
    {
      std::lock_guard lock(mutex_);
      if (!spares_.empty()) {
        auto one = std::move(spares_.back());
        spares_.pop_back();
        return Loan(*this, std::move(one));
      }
    }
    return Loan(*this, std::make_unique<T>());
  }

 private:
  void take_back(std::unique_ptr<T> one) const {
    std::lock_guard lock(mutex_);
    spares_.push_back(std::move(one));
  }

  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<T>> spares_;
};

}  // namespace weft
