#include "formats/gguf.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <unordered_set>

#include "formats/detail/ggml_types.h"

namespace kvasir::formats {
namespace {

constexpr std::uint64_t kMaxNameBytes = 65535;  // the format's own bound for keys
constexpr std::uint64_t kMaxAlignment = 1u << 20;
constexpr std::uint32_t kMaxDims = 4;
constexpr std::uint64_t kMinEntryBytes = 8 + 1 + 4 + 1;  // key length, key, kind, value
constexpr std::uint64_t kMinTensorBytes =
    8 + 1 + 4 + 8 + 4 + 8;  // name, n_dims, one dim, type, offset

template <class T>
T load(const std::byte* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

std::size_t size_of(GgufKind kind) noexcept {
  switch (kind) {
    case GgufKind::u8:
    case GgufKind::i8:
    case GgufKind::boolean:
      return 1;
    case GgufKind::u16:
    case GgufKind::i16:
      return 2;
    case GgufKind::u32:
    case GgufKind::i32:
    case GgufKind::f32:
      return 4;
    case GgufKind::u64:
    case GgufKind::i64:
    case GgufKind::f64:
    case GgufKind::string:
      return 8;  // a string: at least its length
    case GgufKind::array:
      break;
  }
  return 12;  // an array: at least its element kind and count
}

double number_at(GgufKind kind, const std::byte* at) noexcept {
  switch (kind) {
    case GgufKind::u8:
      return load<std::uint8_t>(at);
    case GgufKind::i8:
      return load<std::int8_t>(at);
    case GgufKind::u16:
      return load<std::uint16_t>(at);
    case GgufKind::i16:
      return load<std::int16_t>(at);
    case GgufKind::u32:
      return load<std::uint32_t>(at);
    case GgufKind::i32:
      return load<std::int32_t>(at);
    case GgufKind::f32:
      return load<float>(at);
    case GgufKind::boolean:
      return load<std::uint8_t>(at) != 0 ? 1 : 0;
    case GgufKind::u64:
      return static_cast<double>(load<std::uint64_t>(at));
    case GgufKind::i64:
      return static_cast<double>(load<std::int64_t>(at));
    case GgufKind::f64:
      return load<double>(at);
    case GgufKind::string:
    case GgufKind::array:
      break;
  }
  return 0;
}

json::Value json_at(GgufKind kind, const std::byte* at) {
  switch (kind) {
    case GgufKind::boolean:
      return load<std::uint8_t>(at) != 0;
    case GgufKind::u64:
      return load<std::uint64_t>(at);
    case GgufKind::i64:
      return load<std::int64_t>(at);
    case GgufKind::f32:
    case GgufKind::f64:
      return number_at(kind, at);
    default:
      return static_cast<std::int64_t>(number_at(kind, at));  // at most 32 bits: exact in a double
  }
}

// Bytes not read yet. After the first failure everything fails, so callers may check once a record.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> file) : file_(file) {}

  std::uint64_t left() const noexcept { return file_.size() - at_; }
  std::size_t at() const noexcept { return at_; }
  template <class T>
  bool read(T& value) noexcept {
    if (left() < sizeof value) return false;
    value = load<T>(file_.data() + at_);
    at_ += sizeof value;
    return true;
  }
  bool take(std::uint64_t n, std::span<const std::byte>& out) noexcept {
    if (n > left()) return false;
    out = file_.subspan(at_, n);
    at_ += n;
    return true;
  }
  bool take_string(std::span<const std::byte>& out) noexcept {
    std::uint64_t n = 0;
    return read(n) && take(n, out);
  }

 private:
  std::span<const std::byte> file_;
  std::size_t at_ = 0;
};

std::string_view text_of(std::span<const std::byte> bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Error too_short(const std::string& what) { return invalid(what + ": the file ends too early"); }

Result<std::string> read_name(Reader& in, const std::string& what) {
  std::uint64_t n = 0;
  std::span<const std::byte> bytes;
  if (!in.read(n)) return too_short(what);
  if (n == 0) return invalid(what + " has an empty name");
  if (n > kMaxNameBytes) return invalid(what + ": name of " + std::to_string(n) + " bytes");
  if (!in.take(n, bytes)) return too_short(what);
  return std::string(text_of(bytes));
}

Result<GgufKind> read_kind(Reader& in, const std::string& what) {
  std::uint32_t kind = 0;
  if (!in.read(kind)) return too_short(what);
  if (kind > static_cast<std::uint32_t>(GgufKind::f64))
    return invalid(what + ": unknown value type " + std::to_string(kind));
  return static_cast<GgufKind>(kind);
}

Status read_array(Reader& in, const std::string& what, GgufValue& value) {
  KVASIR_TRY(value.element, read_kind(in, what));
  if (value.element == GgufKind::array) return unsupported(what + ": an array of arrays");
  if (!in.read(value.n)) return too_short(what);
  if (value.n > in.left() / size_of(value.element)) {
    return invalid(what + ": " + std::to_string(value.n) + " elements with " +
                   std::to_string(in.left()) + " bytes left in the file");
  }
  if (value.element != GgufKind::string) {
    return in.take(value.n * size_of(value.element), value.bytes) ? Status() : too_short(what);
  }
  Reader end = in;
  std::span<const std::byte> skipped;
  for (std::uint64_t i = 0; i < value.n; ++i) {
    if (!end.take_string(skipped)) return too_short(what + "[" + std::to_string(i) + "]");
  }
  return in.take(end.at() - in.at(), value.bytes) ? Status() : too_short(what);
}

Result<GgufValue> read_value(Reader& in, const std::string& what) {
  GgufValue value;
  KVASIR_TRY(value.kind, read_kind(in, what));
  if (value.kind == GgufKind::array) {
    KVASIR_TRY_DO(read_array(in, what, value));
    return value;
  }
  const bool is_whole = value.kind == GgufKind::string ? in.take_string(value.bytes)
                                                       : in.take(size_of(value.kind), value.bytes);
  if (!is_whole) return too_short(what);
  return value;
}

Status read_metadata(Reader& in, std::uint64_t n, GgufContent& content) {
  for (std::uint64_t i = 0; i < n; ++i) {
    KVASIR_TRY(std::string key, read_name(in, "metadata entry " + std::to_string(i)));
    KVASIR_TRY(const GgufValue value, read_value(in, "metadata '" + key + "'"));
    if (!content.by_key.emplace(key, content.metadata.size()).second)
      return invalid("metadata key '" + key + "' is duplicated");
    content.metadata.emplace_back(std::move(key), value);
  }
  return {};
}

// Bytes of the tensor, whose rows must be whole blocks; nothing when they pass 2^64.
Result<std::uint64_t> size_of_tensor(const std::string& what,
                                     const GgufTensor& tensor,
                                     const GgmlType& type) {
  std::uint64_t n = 1;
  for (const std::uint64_t dim : tensor.shape) {
    if (__builtin_mul_overflow(n, dim, &n)) return invalid(what + ": impossibly many elements");
  }
  if (tensor.shape.back() % type.block != 0) {
    return invalid(what + ": rows of " + std::to_string(tensor.shape.back()) +
                   " elements are not whole blocks of " + std::to_string(type.block) + " (" +
                   std::string(type.name) + ")");
  }
  if (__builtin_mul_overflow(n / type.block, std::uint64_t{type.block_bytes}, &n))
    return invalid(what + ": impossibly many bytes");
  return n;
}

struct TensorPlace {
  GgufTensor tensor;
  std::uint64_t offset = 0;
  std::uint64_t size_bytes = 0;
};

Result<TensorPlace> read_tensor(Reader& in, std::uint64_t index) {
  TensorPlace out;
  KVASIR_TRY(out.tensor.name, read_name(in, "tensor " + std::to_string(index)));
  const std::string what = "tensor '" + out.tensor.name + "'";
  std::uint32_t n_dims = 0;
  if (!in.read(n_dims)) return too_short(what);
  if (n_dims < 1 || n_dims > kMaxDims)
    return invalid(what + " has " + std::to_string(n_dims) + " dimensions, expected 1 to 4");
  out.tensor.shape.resize(n_dims);
  for (std::uint32_t d = n_dims; d-- > 0;) {
    if (!in.read(out.tensor.shape[d])) return too_short(what);
    if (out.tensor.shape[d] == 0) return invalid(what + " has a dimension of size 0");
  }
  if (!in.read(out.tensor.type) || !in.read(out.offset)) return too_short(what);
  const GgmlType* type = find_ggml_type(out.tensor.type);
  if (!type) return unsupported(what + " has unknown type " + std::to_string(out.tensor.type));
  out.tensor.type_name = type->name;
  KVASIR_TRY(out.size_bytes, size_of_tensor(what, out.tensor, *type));
  return out;
}

Result<std::uint64_t> alignment_of(const GgufContent& content) {
  const GgufValue* value = content.find("general.alignment");
  if (!value) return std::uint64_t{32};
  const auto alignment = value->whole();
  if (!alignment || *alignment > kMaxAlignment || !std::has_single_bit(*alignment)) {
    return invalid("metadata 'general.alignment' is not a power of two up to 2^20");
  }
  return *alignment;
}

Status place_tensors(std::vector<TensorPlace> places,
                     std::span<const std::byte> data,
                     std::uint64_t alignment,
                     GgufContent& content) {
  for (TensorPlace& place : places) {
    const std::string what = "tensor '" + place.tensor.name + "'";
    if (place.offset % alignment != 0)
      return invalid(what + ": its offset is not aligned to " + std::to_string(alignment));
    if (place.offset > data.size() || place.size_bytes > data.size() - place.offset) {
      return invalid(what + ": " + std::to_string(place.size_bytes) + " bytes at " +
                     std::to_string(place.offset) + " reach beyond the file's " +
                     std::to_string(data.size()) + " bytes of data");
    }
    place.tensor.bytes = data.subspan(place.offset, place.size_bytes);
    content.tensors.push_back(std::move(place.tensor));
  }
  std::vector<const GgufTensor*> order;
  for (const GgufTensor& tensor : content.tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(),
            [](auto* a, auto* b) { return a->bytes.data() < b->bytes.data(); });
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (order[i]->bytes.data() < order[i - 1]->bytes.data() + order[i - 1]->bytes.size()) {
      return invalid("tensor '" + order[i]->name + "': its data overlaps that of '" +
                     order[i - 1]->name + "'");
    }
  }
  return {};
}

Status read_tensors(Reader& in,
                    std::uint64_t n,
                    std::span<const std::byte> file,
                    GgufContent& content) {
  std::vector<TensorPlace> places;
  std::unordered_set<std::string> names;
  for (std::uint64_t i = 0; i < n; ++i) {
    KVASIR_TRY(TensorPlace place, read_tensor(in, i));
    if (!names.insert(place.tensor.name).second)
      return invalid("tensor name '" + place.tensor.name + "' is duplicated");
    places.push_back(std::move(place));
  }
  KVASIR_TRY(const std::uint64_t alignment, alignment_of(content));
  const std::uint64_t start =
      std::min<std::uint64_t>((in.at() + alignment - 1) / alignment * alignment, file.size());
  return place_tensors(std::move(places), file.subspan(start), alignment, content);
}

Status check_counts(std::uint64_t n_tensors, std::uint64_t n_entries, std::uint64_t left) {
  const auto refuse = [&](std::uint64_t n, const char* what) {
    return invalid(std::to_string(n) + what + std::to_string(left) + " bytes left in the file");
  };
  if (n_entries > left / kMinEntryBytes) return refuse(n_entries, " metadata entries with ");
  if (n_tensors > left / kMinTensorBytes) return refuse(n_tensors, " tensors with ");
  return {};
}

}  // namespace

Result<GgufContent> parse_gguf(std::span<const std::byte> file) {
  Reader in(file);
  std::uint32_t magic = 0;
  GgufContent content;
  std::uint64_t n_tensors = 0, n_entries = 0;
  if (!in.read(magic) || magic != 0x46554747u) return invalid("not a GGUF file");  // "GGUF"
  if (!in.read(content.version)) return too_short("header");
  if (content.version == 0x02000000u || content.version == 0x03000000u)
    return unsupported("a big-endian GGUF file");
  if (content.version < 2 || content.version > 3) {
    return unsupported("GGUF version " + std::to_string(content.version) + ", supported: 2, 3");
  }
  if (!in.read(n_tensors) || !in.read(n_entries)) return too_short("header");
  KVASIR_TRY_DO(check_counts(n_tensors, n_entries, in.left()));
  KVASIR_TRY_DO(read_metadata(in, n_entries, content));
  KVASIR_TRY_DO(read_tensors(in, n_tensors, file, content));
  return content;
}

std::optional<double> GgufValue::number() const noexcept {
  if (kind == GgufKind::string || kind == GgufKind::array) return std::nullopt;
  return number_at(kind, bytes.data());
}

std::optional<std::uint64_t> GgufValue::whole() const noexcept {
  const auto value = number();
  if (!value || !(*value >= 0) || *value > 0x1p53 || std::floor(*value) != *value)
    return std::nullopt;
  return static_cast<std::uint64_t>(*value);
}

std::optional<std::string_view> GgufValue::text() const noexcept {
  if (kind != GgufKind::string) return std::nullopt;
  return text_of(bytes);
}

std::vector<std::string_view> GgufValue::strings() const {
  std::vector<std::string_view> out;
  if (kind != GgufKind::array || element != GgufKind::string) return out;
  out.reserve(n);
  Reader in(bytes);
  std::span<const std::byte> text;
  for (std::uint64_t i = 0; i < n && in.take_string(text); ++i) out.push_back(text_of(text));
  return out;
}

std::vector<double> GgufValue::numbers() const {
  std::vector<double> out;
  if (kind != GgufKind::array || element == GgufKind::string) return out;
  out.reserve(n);
  for (std::uint64_t i = 0; i < n; ++i)
    out.push_back(number_at(element, bytes.data() + i * size_of(element)));
  return out;
}

json::Value GgufValue::to_json() const {
  if (kind == GgufKind::string) return text_of(bytes);
  if (kind != GgufKind::array) return json_at(kind, bytes.data());
  json::Array out;
  for (const std::string_view text : strings()) out.emplace_back(text);
  if (element == GgufKind::string) return out;
  for (std::uint64_t i = 0; i < n; ++i)
    out.push_back(json_at(element, bytes.data() + i * size_of(element)));
  return out;
}

const GgufValue* GgufContent::find(std::string_view key) const {
  const auto it = by_key.find(std::string(key));
  return it == by_key.end() ? nullptr : &metadata[it->second].second;
}

double GgufContent::number_or(std::string_view key, double other) const {
  const GgufValue* value = find(key);
  return value ? value->number().value_or(other) : other;
}

std::uint64_t GgufContent::whole_or(std::string_view key, std::uint64_t other) const {
  const GgufValue* value = find(key);
  return value ? value->whole().value_or(other) : other;
}

std::string_view GgufContent::text_or(std::string_view key, std::string_view other) const {
  const GgufValue* value = find(key);
  return value ? value->text().value_or(other) : other;
}

}  // namespace kvasir::formats
