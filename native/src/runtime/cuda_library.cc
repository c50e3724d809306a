// Opens the library of the CUDA backend, which is in the same folder as the binary that contains this code.
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "odmoe/cuda.h"
#include "odmoe/cuda_speed.h"
#include "odmoe/error.h"

#ifndef ODMOE_VERSION
#error "ODMOE_VERSION comes from the build"
#endif

namespace odmoe {
namespace {

constexpr const char* kLibraryName = "libodmoe_cuda.so";
// Names another file to open; for tests, and for installations with the library elsewhere.
constexpr const char* kLibraryVariable = "ODMOE_CUDA_LIBRARY";

struct OpenedLibrary {
  std::string path;
  const CudaLibrary* library = nullptr;
  bool found = false;
  std::string reason;
};

const char* named_library() {
  const char* const named = std::getenv(kLibraryVariable);
  return named != nullptr && *named != '\0' ? named : nullptr;
}

std::string library_path() {
  if (const char* const named = named_library(); named != nullptr) return named;
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&cuda_status), &info) == 0 || info.dli_fname == nullptr) return kLibraryName;
  return (std::filesystem::path(info.dli_fname).parent_path() / kLibraryName).string();
}

// True if the file is truncated (an interrupted copy, a full disk). The dynamic linker maps all bytes that a library's header
// names, and a file that ends earlier would end the process. The section headers are a file's last part.
bool is_cut_off(const std::string& path) {
  constexpr size_t kHeaderBytes = 64;
  constexpr size_t kSectionsAt = 0x28;
  constexpr size_t kSectionBytesAt = 0x3A;
  constexpr size_t kSectionCountAt = 0x3C;
  char header[kHeaderBytes] = {};
  std::ifstream file(path, std::ios::binary);
  if (!file.read(header, sizeof header) || std::memcmp(header, "\177ELF", 4) != 0) return false;
  uint64_t sections = 0;
  uint16_t section_bytes = 0;
  uint16_t section_count = 0;
  std::memcpy(&sections, header + kSectionsAt, sizeof sections);
  std::memcpy(&section_bytes, header + kSectionBytesAt, sizeof section_bytes);
  std::memcpy(&section_count, header + kSectionCountAt, sizeof section_count);
  file.seekg(0, std::ios::end);
  const auto size = static_cast<uint64_t>(file.tellg());
  return sections > size || uint64_t{section_bytes} * section_count > size - sections;
}

OpenedLibrary open_library() {
  OpenedLibrary opened;
  opened.path = library_path();
  std::error_code ignored;
  opened.found = std::filesystem::exists(opened.path, ignored);
  if (!opened.found) {
    opened.reason = named_library() != nullptr
                        ? std::string(kLibraryVariable) + " names " + opened.path + ", which is not there"
                        : "odmoe was built without CUDA (" + opened.path + " is not there); `odmoe setup --cuda` gets it";
    return opened;
  }
  if (is_cut_off(opened.path)) {
    opened.reason = opened.path + " is cut off; remove it and run `odmoe setup --cuda`";
    return opened;
  }
  // The first kernel loads all kernels, so that their device memory is known when the device is opened.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  // Never closed: the driver has its own threads.
  void* const handle = dlopen(opened.path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) {
    opened.reason = std::string("the library cannot be opened: ") + dlerror();
    return opened;
  }
  const auto entry = reinterpret_cast<const CudaLibrary* (*)()>(dlsym(handle, kCudaLibraryEntry));
  const CudaLibrary* const library = entry == nullptr ? nullptr : entry();
  if (library == nullptr || std::strcmp(library->build, ODMOE_VERSION) != 0) {
    opened.reason = opened.path + " is of another build of odmoe; run `odmoe setup --cuda`";
    return opened;
  }
  opened.library = library;
  return opened;
}

const OpenedLibrary& opened_library() {
  static const OpenedLibrary opened = open_library();
  return opened;
}

const CudaLibrary& usable_library() {
  const OpenedLibrary& opened = opened_library();
  if (opened.library == nullptr) throw Error(ErrorCode::device_unavailable, "CUDA cannot be used: " + opened.reason);
  return *opened.library;
}

}  // namespace

CudaStatus cuda_status() {
  const OpenedLibrary& opened = opened_library();
  CudaStatus status;
  if (opened.library != nullptr) {
    status = opened.library->status();
  } else {
    status.reason = opened.reason;
  }
  status.built = opened.found;
  status.library = opened.path;
  return status;
}

std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options) { return usable_library().open(options); }

std::unique_ptr<CudaSpeed> make_cuda_speed(int device) { return usable_library().open_speed(device); }

}  // namespace odmoe
