#include "formats/tensor_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "formats/detail/gguf_arch.h"
#include "json/json.h"

namespace kvasir::formats {
namespace {

constexpr std::size_t kAlignment = 32;  // of tensors, GGUF's default

template <class T>
std::string number_bytes(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
std::string text_bytes(std::string_view text) {
  return number_bytes(std::uint64_t{text.size()}).append(text);
}
std::string array_head(GgufKind element, std::size_t n) {
  return number_bytes(static_cast<std::uint32_t>(element)) + number_bytes(std::uint64_t{n});
}

std::uint64_t aligned(std::uint64_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

GgufMetadata& GgufMetadata::add(std::string_view key, GgufKind kind, std::string_view value) {
  bytes_ += text_bytes(key) + number_bytes(static_cast<std::uint32_t>(kind));
  bytes_ += value;
  ++n_;
  return *this;
}
GgufMetadata& GgufMetadata::text(std::string_view key, std::string_view value) {
  return add(key, GgufKind::string, text_bytes(value));
}
GgufMetadata& GgufMetadata::flag(std::string_view key, bool value) {
  return add(key, GgufKind::boolean, number_bytes(std::uint8_t{value}));
}
GgufMetadata& GgufMetadata::whole(std::string_view key, std::uint32_t value) {
  return add(key, GgufKind::u32, number_bytes(value));
}
GgufMetadata& GgufMetadata::real(std::string_view key, float value) {
  return add(key, GgufKind::f32, number_bytes(value));
}
GgufMetadata& GgufMetadata::texts(std::string_view key, std::span<const std::string> values) {
  std::string bytes = array_head(GgufKind::string, values.size());
  for (const std::string& value : values) bytes += text_bytes(value);
  return add(key, GgufKind::array, bytes);
}
GgufMetadata& GgufMetadata::wholes(std::string_view key, std::span<const std::int32_t> values) {
  std::string bytes = array_head(GgufKind::i32, values.size());
  for (const std::int32_t value : values) bytes += number_bytes(value);
  return add(key, GgufKind::array, bytes);
}

std::optional<std::string> gguf_tensor_name(std::string_view architecture,
                                            std::string_view canonical) {
  return stored_gguf_name(gguf_arch_named(architecture), canonical);
}

Result<TensorFile> TensorFile::create_safetensors(const std::filesystem::path& path,
                                                  std::span<const NewTensor> tensors) {
  json::Object header{{"__metadata__", json::Object{{"format", "pt"}}}};
  std::vector<Place> places;
  std::uint64_t end = 0;
  for (const NewTensor& tensor : tensors) {
    json::Array shape;
    for (const std::uint64_t dim : tensor.shape) shape.emplace_back(dim);
    places.push_back({end, tensor.size_bytes});
    end += tensor.size_bytes;
    header.push_back(tensor.name,
                     json::Object{{"dtype", tensor.dtype},
                                  {"shape", std::move(shape)},
                                  {"data_offsets", json::Array{places.back().begin, end}}});
  }
  std::string text = json::write(json::Value(std::move(header)));
  text.resize(aligned(8 + text.size()) - 8, ' ');  // the data begins aligned
  for (Place& place : places) place.begin += 8 + text.size();
  return create(path, number_bytes(std::uint64_t{text.size()}) + text, std::move(places));
}

Result<TensorFile> TensorFile::create_gguf(const std::filesystem::path& path,
                                           const GgufMetadata& metadata,
                                           std::span<const NewTensor> tensors) {
  std::string header = "GGUF" + number_bytes(std::uint32_t{3}) +
                       number_bytes(std::uint64_t{tensors.size()}) + number_bytes(metadata.size()) +
                       metadata.bytes();
  std::vector<Place> places;
  std::uint64_t end = 0;
  for (const NewTensor& tensor : tensors) {
    header += text_bytes(tensor.name);
    header += number_bytes(static_cast<std::uint32_t>(tensor.shape.size()));
    for (auto dim = tensor.shape.rbegin(); dim != tensor.shape.rend(); ++dim)
      header += number_bytes(*dim);
    places.push_back({aligned(end), tensor.size_bytes});
    end = places.back().begin + tensor.size_bytes;
    header += number_bytes(tensor.ggml_type) + number_bytes(places.back().begin);
  }
  header.resize(aligned(header.size()), '\0');
  for (Place& place : places) place.begin += header.size();
  return create(path, header, std::move(places));
}

Result<TensorFile> TensorFile::create(const std::filesystem::path& path,
                                      const std::string& header,
                                      std::vector<Place> places) {
  TensorFile file;
  file.path_ = path;
  file.fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file.fd_ < 0) return file.error();
  const std::uint64_t size =
      places.empty() ? header.size() : places.back().begin + places.back().size_bytes;
  if (::ftruncate(file.fd_, static_cast<off_t>(size)) != 0) return file.error();
  // The header as one more tensor, which is then forgotten.
  file.places_ = {{0, header.size()}};
  KVASIR_TRY_DO(file.write(0, 0, std::as_bytes(std::span(header.data(), header.size()))));
  file.places_ = std::move(places);
  return file;
}

TensorFile::TensorFile(TensorFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      places_(std::move(other.places_)) {}

TensorFile& TensorFile::operator=(TensorFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(places_, other.places_);
  return *this;
}

TensorFile::~TensorFile() {
  if (fd_ >= 0) ::close(fd_);
}

Status TensorFile::write(std::size_t i, std::uint64_t offset, std::span<const std::byte> bytes) {
  const Place& place = places_.at(i);
  KVASIR_CHECK(offset <= place.size_bytes && bytes.size() <= place.size_bytes - offset);
  std::uint64_t at = place.begin + offset;
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return error();
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    at += static_cast<std::uint64_t>(n);
  }
  return {};
}

Status TensorFile::close() {
  if (::close(std::exchange(fd_, -1)) != 0) return error();
  return {};
}

Error TensorFile::error() const { return io_error(path_.string() + ": " + std::strerror(errno)); }

}  // namespace kvasir::formats
