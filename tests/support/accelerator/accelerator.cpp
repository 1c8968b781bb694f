// An accelerator that is none: its memory is the host's and the CPU computes, but nobody may read what it has not
// been told to make ready. It stands in for a GPU where there is none, and finds three kinds of mistakes:
//
// - Work is queued by stream, and done when that stream, or an event of it, is waited for. What was not waited for
//   reads as NaN, of memory that nothing has been written to yet; so does memory that was given back.
// - Copies between pinned memory and the device read their source only then.
// - Tensors on different devices do not go together.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/NativeFunctions.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;

constexpr auto KIND = c10::DeviceType::PrivateUse1;
constexpr DeviceIndex DEVICES = 2;

struct Queue {
  std::deque<std::function<void()>> waiting;
  uint64_t done = 0;
  uint64_t told() const {
    return done + waiting.size();
  }
};

std::recursive_mutex turn;
int turns = 0;
std::vector<std::function<void()>> over;

// What has been done is given back when nobody has the turn: that may wait for Python, which may wait for the turn.
struct Turn {
  Turn() {
    turn.lock();
    turns++;
  }
  ~Turn() {
    std::vector<std::function<void()>> done;
    if (--turns == 0)
      done.swap(over);
    turn.unlock();
  }
};

std::map<std::pair<DeviceIndex, c10::StreamId>, Queue> queues;
thread_local DeviceIndex current = 0;
thread_local c10::StreamId streams[DEVICES] = {};
c10::StreamId newest = 0;

Queue& queue(const Stream& stream) {
  return queues[{stream.device_index(), stream.id()}];
}

Stream stream_of(DeviceIndex device) {
  return Stream(Stream::UNSAFE, Device(KIND, device), streams[device]);
}

void drain(Queue& of, uint64_t upto) {
  while (of.done < upto && !of.waiting.empty()) {
    auto work = std::move(of.waiting.front());
    of.waiting.pop_front();
    of.done++;
    work();
    over.push_back(std::move(work));
  }
}

void drain(const Stream& stream) {
  auto& of = queue(stream);
  drain(of, of.told());
}

void tell(const Stream& stream, std::function<void()> work) {
  queue(stream).waiting.push_back(std::move(work));
}

// ---------------------------------------------------------------- memory

struct Block {
  size_t nbytes;
  Stream made;
  std::vector<Stream> used;
};
std::map<void*, Block> blocks, pinned;

// Memory that is given back is overwritten when its stream comes to it, and is nobody's again.
void give_back(void* memory) {
  const Turn lock;
  const auto found = blocks.find(memory);
  if (found == blocks.end())
    return;
  auto block = found->second;
  for (const auto& other : block.used) {
    const auto upto = queue(other).told();
    tell(block.made, [=] { drain(queue(other), upto); });
  }
  tell(block.made, [=] { std::memset(memory, 0xFF, block.nbytes); });
}

void unpin(void* memory) {
  const Turn lock;
  pinned.erase(memory);
  std::free(memory);
}

void* taken(size_t nbytes) {
  void* memory = nullptr;
  TORCH_CHECK(posix_memalign(&memory, 512, nbytes ? nbytes : 1) == 0);
  std::memset(memory, 0xFF, nbytes);
  return memory;
}

struct OnDevice final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t nbytes) override {
    const Turn lock;
    auto* memory = taken(nbytes);
    blocks.insert({memory, Block{nbytes, stream_of(current), {}}});
    return {memory, memory, &give_back, Device(KIND, current)};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return &give_back;
  }
  void copy_data(void* to, const void* from, size_t nbytes) const override {
    std::memcpy(to, from, nbytes);
  }
  bool initialized() override {
    return true;
  }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr& memory, Stream stream) override {
    const Turn lock;
    const auto found = blocks.find(memory.get_context());
    if (found != blocks.end())
      found->second.used.push_back(stream);
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex) override {
    return {};
  }
  void resetAccumulatedStats(DeviceIndex) override {}
  void resetPeakStats(DeviceIndex) override {}
  // As much as FAKE_MEMORY says, if it is set, whatever is there already.
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex) override {
    const auto* said = std::getenv("FAKE_MEMORY");
    TORCH_CHECK_NOT_IMPLEMENTED(said, "it does not tell");
    return {std::stoull(said), std::stoull(said)};
  }
};

struct Pinned final : c10::Allocator {
  c10::DataPtr allocate(size_t nbytes) override {
    const Turn lock;
    auto* memory = taken(nbytes);
    pinned.insert({memory, Block{nbytes, stream_of(current), {}}});
    return {memory, memory, &unpin, Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return &unpin;
  }
  void copy_data(void* to, const void* from, size_t nbytes) const override {
    std::memcpy(to, from, nbytes);
  }
};

OnDevice on_device;
Pinned on_host;
REGISTER_ALLOCATOR(KIND, &on_device);

bool lies_in(const std::map<void*, Block>& among, const void* where) {
  const Turn lock;
  auto next = among.upper_bound(const_cast<void*>(where));
  if (next == among.begin())
    return false;
  const auto& [begin, block] = *--next;
  return where < static_cast<const char*>(begin) + std::max<size_t>(block.nbytes, 1);
}

// ---------------------------------------------------------------- devices, streams, events

struct Event {
  Stream stream;
  uint64_t upto;
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override {
    return KIND;
  }
  Device exchangeDevice(Device device) const override {
    return Device(KIND, std::exchange(current, device.index()));
  }
  Device getDevice() const override {
    return Device(KIND, current);
  }
  void setDevice(Device device) const override {
    TORCH_CHECK(device.index() < DEVICES, "there is no device ", device);
    current = device.index();
  }
  void uncheckedSetDevice(Device device) const noexcept override {
    current = device.index();
  }
  DeviceIndex deviceCount() const noexcept override {
    return DEVICES;
  }
  Stream getStream(Device device) const override {
    return stream_of(device.has_index() ? device.index() : current);
  }
  Stream getDefaultStream(Device device) const override {
    return Stream(Stream::UNSAFE, Device(KIND, device.has_index() ? device.index() : current), 0);
  }
  Stream getStreamFromGlobalPool(Device device, bool) const override {
    return getNewStream(device, 0);
  }
  Stream getNewStream(Device device, int) const override {
    const Turn lock;
    return Stream(Stream::UNSAFE, Device(KIND, device.has_index() ? device.index() : current), ++newest);
  }
  Stream exchangeStream(Stream stream) const override {
    const auto before = stream_of(stream.device_index());
    streams[stream.device_index()] = stream.id();
    return before;
  }
  bool queryStream(const Stream& stream) const override {
    const Turn lock;
    return queue(stream).waiting.empty();
  }
  void synchronizeStream(const Stream& stream) const override {
    const Turn lock;
    drain(stream);
  }
  void synchronizeDevice(const DeviceIndex device) const override {
    const Turn lock;
    for (auto& [which, of] : queues)
      if (which.first == device)
        drain(of, of.told());
  }
  void recordDataPtrOnStream(const c10::DataPtr& memory, const Stream& stream) const override {
    on_device.recordStream(memory, stream);
  }
  void record(void** event, const Stream& stream, const DeviceIndex, const c10::EventFlag) const override {
    const Turn lock;
    delete static_cast<Event*>(*event);
    *event = new Event{stream, queue(stream).told()};
  }
  void block(void* event, const Stream& stream) const override {
    const Turn lock;
    if (event == nullptr)
      return;
    const auto at = *static_cast<Event*>(event);
    tell(stream, [=] { drain(queue(at.stream), at.upto); });
  }
  bool queryEvent(void* event) const override {
    const Turn lock;
    const auto* at = static_cast<Event*>(event);
    return at == nullptr || queue(at->stream).done >= at->upto;
  }
  void synchronizeEvent(void* event) const override {
    const Turn lock;
    if (const auto* at = static_cast<Event*>(event))
      drain(queue(at->stream), at->upto);
  }
  void destroyEvent(void* event, const DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override {
    return true;
  }
  bool isAvailable() const override {
    return true;
  }
  bool hasPrimaryContext(DeviceIndex) const override {
    return true;
  }
  DeviceIndex deviceCount() const override {
    return DEVICES;
  }
  void setCurrentDevice(DeviceIndex device) const override {
    current = device;
  }
  DeviceIndex getCurrentDevice() const override {
    return current;
  }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    return std::exchange(current, device);
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override {
    return device < 0 ? current : exchangeDevice(device);
  }
  bool isPinnedPtr(const void* where) const override {
    return lies_in(pinned, where);
  }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    return &on_host;
  }
  Device getDeviceFromPtr(void*) const override {
    return Device(KIND, current);
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t nbytes) const override {
    const Turn lock;
    drain(stream_of(storage.device().index()));
    auto larger = on_device.allocate(nbytes);
    if (storage.data())
      std::memcpy(larger.get(), storage.data(), std::min(nbytes, storage.nbytes()));
    storage.set_data_ptr_noswap(std::move(larger));
    storage.unsafeGetStorageImpl()->set_nbytes(nbytes);
  }
};

// ---------------------------------------------------------------- operations

// The memory of a tensor as the host sees it; it is not kept alive by that.
at::Tensor bare(const at::Tensor& tensor) {
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
}

void put(const at::Tensor& to, const at::Tensor& from) {
  at::AutoDispatchBelowADInplaceOrView guard;
  to.copy_(from);
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const at::Tensor held[] = {from, to};  // to refer to what Python has may wait for Python, too
  const Turn lock;
  const auto stream = stream_of((from.is_cpu() ? to : from).device().index());
  const auto there = bare(to);
  if (to.is_cpu()) {
    const auto here = bare(from);
    if (non_blocking && lies_in(pinned, to.data_ptr())) {
      tell(stream, [there, here, keep = to] { put(there, here); });
    } else {
      drain(stream);
      put(there, here);
    }
  } else if (!from.is_cpu()) {  // between devices each waits for the other, as CUDA's do
    const auto other = stream_of(to.device().index());
    if (other != stream)
      tell(stream, [other, upto = queue(other).told()] { drain(queue(other), upto); });
    tell(stream, [there, here = bare(from)] { put(there, here); });
    if (other != stream)
      tell(other, [stream, upto = queue(stream).told()] { drain(queue(stream), upto); });
  } else if (non_blocking && lies_in(pinned, from.data_ptr())) {
    tell(stream, [there, from] { put(there, from); });
  } else {
    at::AutoDispatchBelowADInplaceOrView guard;
    tell(stream, [there, now = from.clone()] { put(there, now); });
  }
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes())
    at::native::resize_(to, from.sizes());
  return copy_from(from, to, false);
}

at::Tensor empty(c10::IntArrayRef sizes, std::optional<c10::ScalarType> type, std::optional<c10::Layout>,
                 std::optional<Device> device, std::optional<bool>, std::optional<c10::MemoryFormat> format) {
  const c10::DeviceGuard guard(*device);
  return at::detail::empty_generic(sizes, &on_device, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides, std::optional<c10::ScalarType> type,
                         std::optional<c10::Layout>, std::optional<Device> device, std::optional<bool>) {
  const c10::DeviceGuard guard(*device);
  return at::detail::empty_strided_generic(sizes, strides, &on_device,
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(type));
}

at::Scalar item(const at::Tensor& self) {
  const Turn lock;
  drain(stream_of(self.device().index()));
  return at::native::_local_scalar_dense_cpu(bare(self));
}

at::Tensor& set_all(at::Tensor& self, at::Storage source, int64_t offset, c10::IntArrayRef sizes,
                    c10::IntArrayRef strides) {
  return at::native::set_storage_cpu_(self, std::move(source), offset, sizes, strides);
}

void record_stream(at::Tensor& self, Stream stream) {
  Guard().recordDataPtrOnStream(self.storage().data_ptr(), stream);
}

void on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  std::optional<Device> where;
  const auto check = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || (tensor.is_cpu() && tensor.dim() == 0))
      return;
    TORCH_CHECK(where.value_or(tensor.device()) == tensor.device(), "Expected all tensors to be on the same device: ",
                op.schema().operator_name(), " of ", *where, " and ", tensor.device());
    where = tensor.device();
  };
  const auto arguments = op.schema().arguments().size();
  for (const auto& given : torch::jit::last(*stack, arguments)) {
    if (given.isTensor())
      check(given.toTensor());
    else if (given.isTensorList())
      for (const at::Tensor each : given.toTensorList())
        check(each);
  }
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", at::native::view);
  m.impl("resize_", at::native::resize_);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", item);
  m.impl("set_.source_Tensor", at::native::set_tensor_);
  m.impl("set_.source_Storage", static_cast<at::Tensor& (*)(at::Tensor&, at::Storage)>(at::native::set_));
  m.impl("set_.source_Storage_storage_offset", set_all);
  m.impl("record_stream", record_stream);
}

// Let the memory of a tensor be somewhere else, such as where another process maps it too.
void lie_at(const at::Tensor& self, int64_t address) {
  const Turn lock;
  drain(stream_of(self.device().index()));
  auto* there = reinterpret_cast<void*>(address);
  self.storage().set_data_ptr_noswap(c10::DataPtr(there, self.device()));
}

TORCH_LIBRARY(fake, m) {
  m.def("lie_at(Tensor self, int address) -> ()");
}

TORCH_LIBRARY_IMPL(fake, PrivateUse1, m) {
  m.impl("lie_at", lie_at);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_cpu>());
}

const bool registered = (at::RegisterPrivateUse1HooksInterface(new Hooks()), true);

} // namespace
