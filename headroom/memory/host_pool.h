// Page-locked memory of the host for tensors that wait there: taken from the system in large
// pieces, given out in small ones, kept for the next. One pool for the process, which lives as long
// as anyone holds it.
//
//   const std::shared_ptr<HostPool> pool = HostPool::of_process();
//   HostPool::Buffer buffer = pool->take(size, HostPool::Lock::new_pages);
//   buffer.bytes().copy_(on_device, /*non_blocking=*/true);
//
// To page-lock memory takes the system about as long as to fill it, and waits for the card. Where
// that must not happen, Lock::kept_pages gives what the pool has, or ordinary memory.
//
// Threads: call everything from any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "headroom/base/bytes.h"

namespace headroom::memory {

class HostPool : public std::enable_shared_from_this<HostPool> {
 public:
  enum class Lock : std::uint8_t {
    new_pages,   // page-locks more memory if the pool has none
    kept_pages,  // ordinary memory if the pool has none
    never,       // ordinary memory
  };

  // A place of the pool's, given back at its end.
  class Buffer {
   public:
    Buffer() = default;
    Buffer(Buffer&& other) noexcept { swap(other); }
    Buffer& operator=(Buffer&& other) noexcept {
      Buffer(std::move(other)).swap(*this);
      return *this;
    }
    ~Buffer();
    [[nodiscard]] bool defined() const { return bytes_.defined(); }
    [[nodiscard]] const at::Tensor& bytes() const { return bytes_; }
    // The end of the last copy into or out of this memory, which new work on it must wait for.
    // Null: it may be used at once.
    [[nodiscard]] const std::shared_ptr<c10::Event>& used_before() const { return before_; }
    // The next user of the memory waits for it.
    void used_until(std::shared_ptr<c10::Event> event) { until_ = std::move(event); }
    // A buffer that is not the pool's.
    static Buffer of(at::Tensor bytes);

   private:
    friend class HostPool;
    void swap(Buffer& other) noexcept;

    std::shared_ptr<HostPool> pool_;  // null for memory that is not the pool's
    std::size_t piece_ = 0;
    std::int64_t at_ = 0;
    at::Tensor bytes_;
    std::shared_ptr<c10::Event> before_, until_;
  };

  [[nodiscard]] static std::shared_ptr<HostPool> of_process();

  [[nodiscard]] Buffer take(std::int64_t bytes, Lock lock);
  // Page-locks as much as is missing until it holds this much.
  void warm(Bytes enough);
  // Held from the system.
  [[nodiscard]] Bytes held() const;

 private:
  struct Gap {
    std::int64_t size = 0;
    std::shared_ptr<c10::Event> used_until;
  };
  struct Piece {
    at::Tensor memory;
    std::map<std::int64_t, Gap> gaps;  // by where they begin
  };
  bool take_from(std::size_t piece, std::int64_t bytes, Buffer& buffer);
  bool grow(std::int64_t at_least);
  void give_back(Buffer& buffer);

  mutable std::mutex mutex_;  // guards what follows
  std::vector<Piece> pieces_;
  Bytes held_, given_;
};

}  // namespace headroom::memory
