#include "base/file.h"

#include <lzma.h>

#include <fstream>

namespace kvasir {
namespace {

constexpr std::uint64_t kDecoderMemoryBytes = 256ull << 20;

Result<std::string> decompress(const std::string& packed,
                               const std::string& name,
                               std::uint64_t max_bytes) {
  lzma_stream stream = LZMA_STREAM_INIT;
  if (lzma_stream_decoder(&stream, kDecoderMemoryBytes, LZMA_CONCATENATED) != LZMA_OK) {
    return io_error(name + ": cannot start the xz decoder");
  }
  std::string out;
  stream.next_in = reinterpret_cast<const std::uint8_t*>(packed.data());
  stream.avail_in = packed.size();
  lzma_ret code = LZMA_OK;
  std::string chunk(1 << 20, '\0');
  while (code == LZMA_OK && out.size() <= max_bytes) {
    stream.next_out = reinterpret_cast<std::uint8_t*>(chunk.data());
    stream.avail_out = chunk.size();
    code = lzma_code(&stream, LZMA_FINISH);
    out.append(chunk, 0, chunk.size() - stream.avail_out);
  }
  lzma_end(&stream);
  if (out.size() > max_bytes)
    return invalid(name + ": more than " + std::to_string(max_bytes) + " bytes unpacked");
  if (code != LZMA_STREAM_END) return io_error(name + ": damaged xz data");
  return out;
}

}  // namespace

Result<std::string> read_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  std::error_code ec;
  if (!std::filesystem::is_regular_file(path, ec))
    return not_found(path.string() + ": no such file");
  const auto size_bytes = std::filesystem::file_size(path, ec);
  if (ec) return io_error(path.string() + ": " + ec.message());
  if (size_bytes > max_bytes) {
    return invalid(path.string() + ": " + std::to_string(size_bytes) + " bytes, at most " +
                   std::to_string(max_bytes));
  }
  std::ifstream in(path, std::ios::binary);
  std::string bytes(size_bytes, '\0');
  if (!in.read(bytes.data(), static_cast<std::streamsize>(size_bytes)))
    return io_error(path.string() + ": cannot read");
  if (path.extension() == ".xz") return decompress(bytes, path.string(), max_bytes);
  return bytes;
}

}  // namespace kvasir
