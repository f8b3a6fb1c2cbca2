// What is common to all policies. The twin of engine/policy.py.
#pragma once

#include <atomic>
#include <mutex>
#include <thread>

#include "supply.hpp"

namespace allotment {

struct LimitError {
    std::uint64_t missing, reserved, limit;
};

// Memory was asked for by a finaliser that runs while the same thread makes memory.
struct NestedError {};

struct Figures {
    std::uint64_t reserved = 0, peak_reserved = 0, allocated = 0, largest_free = 0;
};

// Held for some ten nanoseconds at a time, and never while anything is waited for.
class SpinLock {
  public:
    void lock() {
        for (int turns = 0; is_held_.exchange(true, std::memory_order_acquire); ++turns) {
            if (turns > 64) std::this_thread::yield();
        }
    }
    void unlock() { is_held_.store(false, std::memory_order_release); }

  private:
    std::atomic<bool> is_held_{false};
};

// One thread at a time changes what memory is behind, while others take and give blocks that are at hand.
class Turn {
  public:
    class Holder {
      public:
        explicit Holder(Turn &turn) : turn_(turn) {
            if (turn.holder_ == std::this_thread::get_id()) throw NestedError{};
            turn.mutex_.lock();
            turn.holder_ = std::this_thread::get_id();
        }
        ~Holder() {
            turn_.holder_ = std::thread::id{};
            turn_.mutex_.unlock();
        }
        Holder(const Holder &) = delete;
        Holder &operator=(const Holder &) = delete;

      private:
        Turn &turn_;
    };

    bool is_taken() const { return holder_.load() != std::thread::id{}; }

  private:
    std::mutex mutex_;
    std::atomic<std::thread::id> holder_{std::thread::id{}};
};

}  // namespace allotment
