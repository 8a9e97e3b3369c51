#include "formats/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "formats/detail/mapped_file.h"
#include "json/json.h"

namespace kvasir::formats {
namespace {

constexpr std::uint64_t kMaxHeaderBytes = 100ull << 20;
constexpr std::size_t kMaxHeaderDepth = 8;

struct Dtype {
  std::string_view name;
  std::uint32_t bits;
};
constexpr std::array kDtypes{
    Dtype{"F64", 64},    Dtype{"F32", 32},    Dtype{"F16", 16},    Dtype{"BF16", 16},
    Dtype{"F8_E4M3", 8}, Dtype{"F8_E5M2", 8}, Dtype{"F8_E8M0", 8}, Dtype{"F4", 4},
    Dtype{"F6_E2M3", 6}, Dtype{"F6_E3M2", 6}, Dtype{"I64", 64},    Dtype{"I32", 32},
    Dtype{"I16", 16},    Dtype{"I8", 8},      Dtype{"U64", 64},    Dtype{"U32", 32},
    Dtype{"U16", 16},    Dtype{"U8", 8},      Dtype{"BOOL", 8},    Dtype{"C64", 64},
};

Error tensor_error(std::string_view name, std::string_view what) {
  std::string text = "tensor '";
  text.append(name).append("': ").append(what);
  return invalid(std::move(text));
}

std::optional<std::uint64_t> whole_number(const json::Value& value) {
  const std::int64_t* n = value.as_int();
  if (!n || *n < 0) return std::nullopt;
  return static_cast<std::uint64_t>(*n);
}

Result<std::vector<std::uint64_t>> whole_numbers(std::string_view name,
                                                 std::string_view member,
                                                 const json::Value* value) {
  const json::Array* items = value ? value->as_array() : nullptr;
  if (!items) return tensor_error(name, std::string(member) + " is not a list");
  std::vector<std::uint64_t> out;
  for (const json::Value& item : *items) {
    const auto n = whole_number(item);
    if (!n)
      return tensor_error(name,
                          std::string(member) + " holds something that is not a whole number >= 0");
    out.push_back(*n);
  }
  return out;
}

// shape × dtype in bytes; nothing when it passes 2^64 bits or is no whole number of bytes.
std::optional<std::uint64_t> bytes_of(const std::vector<std::uint64_t>& shape, std::uint32_t bits) {
  std::uint64_t total = bits;
  for (const std::uint64_t dim : shape) {
    if (__builtin_mul_overflow(total, dim, &total)) return std::nullopt;
  }
  if (total % 8 != 0) return std::nullopt;
  return total / 8;
}

Result<SafeTensor> read_tensor(const std::string& name,
                               const json::Value& facts,
                               std::span<const std::byte> data) {
  const json::Object* object = facts.as_object();
  if (!object) return tensor_error(name, "described by something that is not an object");
  std::unordered_set<std::string_view> seen;
  for (const auto& [key, value] : *object) {
    if (!seen.insert(key).second) return tensor_error(name, "member '" + key + "' is duplicated");
  }
  SafeTensor tensor;
  tensor.name = name;
  tensor.dtype = facts.string_or("dtype", "");
  const auto* const dtype = std::find_if(kDtypes.begin(), kDtypes.end(),
                                         [&](const Dtype& d) { return d.name == tensor.dtype; });
  if (dtype == kDtypes.end()) return tensor_error(name, "unknown dtype '" + tensor.dtype + "'");
  KVASIR_TRY(tensor.shape, whole_numbers(name, "shape", facts.find("shape")));
  KVASIR_TRY(const std::vector<std::uint64_t> offsets,
             whole_numbers(name, "data_offsets", facts.find("data_offsets")));
  if (offsets.size() != 2)
    return tensor_error(name,
                        "data_offsets holds " + std::to_string(offsets.size()) + " numbers, not 2");
  const std::uint64_t begin = offsets[0], end = offsets[1];
  const std::string range =
      "data_offsets [" + std::to_string(begin) + ", " + std::to_string(end) + "]";
  if (begin > end) return tensor_error(name, range + " are reversed");
  if (end > data.size()) {
    return tensor_error(
        name, range + " reach beyond the file's " + std::to_string(data.size()) + " bytes of data");
  }
  const auto expected = bytes_of(tensor.shape, dtype->bits);
  if (!expected || *expected != end - begin) {
    return tensor_error(
        name, range + " hold " + std::to_string(end - begin) + " bytes, shape and dtype say " +
                  (expected ? std::to_string(*expected) : std::string("an impossible number")));
  }
  tensor.bytes = data.subspan(begin, end - begin);
  return tensor;
}

Status read_metadata(const json::Value& value, SafetensorsContent& content) {
  if (value.is_null()) return {};  // how MLX writes "none"
  const json::Object* object = value.as_object();
  if (!object) return invalid("__metadata__ is not an object");
  for (const auto& [key, text] : *object) {
    if (!text.is_string()) return invalid("__metadata__ member '" + key + "' is not a string");
    content.metadata.emplace_back(key, *text.as_string());
  }
  return {};
}

Status check_overlap(std::vector<SafeTensor>& tensors) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const SafeTensor& a, const SafeTensor& b) {
    return a.bytes.data() < b.bytes.data();
  });
  const SafeTensor* last = nullptr;
  for (const SafeTensor& tensor : tensors) {
    if (tensor.bytes.empty()) continue;
    if (last && tensor.bytes.data() < last->bytes.data() + last->bytes.size()) {
      return tensor_error(tensor.name, "its data overlaps that of '" + last->name + "'");
    }
    last = &tensor;
  }
  return {};
}

}  // namespace

Result<SafetensorsContent> parse_safetensors(std::span<const std::byte> file) {
  std::uint64_t header_bytes = 0;
  if (file.size() < sizeof header_bytes) return invalid("too short for a safetensors file");
  std::memcpy(&header_bytes, file.data(), sizeof header_bytes);
  if (header_bytes > kMaxHeaderBytes)
    return invalid("header of " + std::to_string(header_bytes) + " bytes, at most 100 MiB");
  if (header_bytes > file.size() - 8) {
    return invalid("header of " + std::to_string(header_bytes) + " bytes in a file of " +
                   std::to_string(file.size()));
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data() + 8), header_bytes);
  KVASIR_TRY(const json::Value header, json::parse(text, {kMaxHeaderBytes, kMaxHeaderDepth}));
  const json::Object* members = header.as_object();
  if (!members || !text.starts_with('{')) return invalid("the header is not a JSON object");

  SafetensorsContent content;
  std::unordered_set<std::string_view> names;
  for (const auto& [name, facts] : *members) {
    if (!names.insert(name).second)
      return invalid("tensor name '" + name + "' is duplicated in the header");
    if (name == "__metadata__") {
      KVASIR_TRY_DO(read_metadata(facts, content));
      continue;
    }
    KVASIR_TRY(SafeTensor tensor, read_tensor(name, facts, file.subspan(8 + header_bytes)));
    content.tensors.push_back(std::move(tensor));
  }
  KVASIR_TRY_DO(check_overlap(content.tensors));
  return content;
}

struct SafetensorsFile::Impl {
  MappedFile map;
  SafetensorsContent content;
  std::unordered_map<std::string_view, std::size_t> by_name;
};

SafetensorsFile::SafetensorsFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;
SafetensorsFile::~SafetensorsFile() = default;

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  KVASIR_TRY(MappedFile map, MappedFile::open(path));
  auto content = parse_safetensors(map.bytes());
  if (!content) return Error{content.error().code, path.string() + ": " + content.error().what};
  auto impl = std::make_unique<Impl>(Impl{std::move(map), *std::move(content), {}});
  for (std::size_t i = 0; i < impl->content.tensors.size(); ++i)
    impl->by_name[impl->content.tensors[i].name] = i;
  return SafetensorsFile(std::move(impl));
}

const std::vector<SafeTensor>& SafetensorsFile::tensors() const noexcept {
  return impl_->content.tensors;
}
const std::vector<std::pair<std::string, std::string>>& SafetensorsFile::metadata() const noexcept {
  return impl_->content.metadata;
}

const SafeTensor* SafetensorsFile::find(std::string_view name) const noexcept {
  const auto it = impl_->by_name.find(name);
  return it == impl_->by_name.end() ? nullptr : &impl_->content.tensors[it->second];
}

}  // namespace kvasir::formats
