#include "kvasir/synth/pieces.h"

#include <algorithm>
#include <string>

#include "codec/weight_encode.h"

namespace kvasir::synth {
namespace {

constexpr std::uint64_t kBlockElements = 1u << 20;  // encoded before each write

constexpr std::string_view kSuffix = ".weight";

bool can_hold(codec::WeightType type, const Piece& piece) {
  const codec::WeightTypeInfo& facts = codec::info(type);
  if (!facts.quantized) return true;
  return piece.wanted.name.ends_with(kSuffix) && piece.n_in % facts.block == 0;
}

const char* dtype_of(codec::WeightType type) {
  const std::string_view name = codec::info(type).name;
  return name == "f32" ? "F32" : name == "f16" ? "F16" : name == "bf16" ? "BF16" : "U32";
}

// Encodes blocks of rows of one piece on several threads.
class BlockEncoder {
 public:
  BlockEncoder(ThreadPool& pool, const Piece& piece, std::uint64_t seed)
      : pool_(pool),
        piece_(piece),
        random_(seed,
                piece.wanted.name,
                spread_of(piece.wanted.name, piece.wanted.is_matrix, piece.n_in)),
        block_rows_(std::clamp<std::uint64_t>(kBlockElements / piece.n_in, 1, piece.n_rows)),
        codes_(block_rows_ * piece.row_bytes()),
        scales_(block_rows_ * piece.scale_row_bytes()),
        biases_(scales_.size()) {}

  std::uint64_t block_rows() const noexcept { return block_rows_; }

  void encode(std::uint64_t first, std::uint64_t n) {
    const auto n_parts = static_cast<std::uint64_t>(pool_.n_threads());
    pool_.run([&](int part) {
      std::vector<float> row(piece_.n_in);
      const auto p = static_cast<std::uint64_t>(part);
      for (std::uint64_t r = n * p / n_parts; r < n * (p + 1) / n_parts; ++r) {
        random_.fill(static_cast<std::uint32_t>(first + r), row);
        codec::encode_row(
            piece_.type, row.data(), row.size(),
            {codes_.data() + r * piece_.row_bytes(), scales_.data() + r * piece_.scale_row_bytes(),
             biases_.data() + r * piece_.scale_row_bytes()});
      }
    });
  }

  Status write(formats::TensorFile& file, std::uint64_t first, std::uint64_t n) const {
    const auto plane = [&](std::size_t tensor, const std::vector<std::byte>& bytes,
                           std::size_t row_bytes) {
      return file.write(tensor, first * row_bytes, std::span(bytes).first(n * row_bytes));
    };
    KVASIR_TRY_DO(plane(piece_.codes, codes_, piece_.row_bytes()));
    if (!piece_.is_planar()) return {};
    KVASIR_TRY_DO(plane(piece_.codes + 1, scales_, piece_.scale_row_bytes()));
    return plane(piece_.codes + 2, biases_, piece_.scale_row_bytes());
  }

 private:
  ThreadPool& pool_;
  const Piece& piece_;
  RandomRows random_;
  std::uint64_t block_rows_;
  std::vector<std::byte> codes_, scales_, biases_;
};

}  // namespace

std::vector<Piece> make_pieces(std::vector<formats::WantedTensor> wanted,
                               const StoredTypes& types) {
  std::vector<Piece> out;
  std::size_t next = 0;
  for (formats::WantedTensor& tensor : wanted) {
    Piece piece{.wanted = std::move(tensor), .type = types.vector};
    const std::vector<std::uint64_t>& shape = piece.wanted.shape;
    std::uint64_t n = 1;
    for (const std::uint64_t dim : shape) n *= dim;
    piece.n_in = piece.wanted.is_matrix ? shape.back() : n;
    piece.n_rows = n / piece.n_in;
    if (piece.wanted.is_matrix)
      piece.type = can_hold(types.matrix, piece) ? types.matrix : types.dense;
    piece.codes = next;
    next += piece.is_planar() ? 3 : 1;
    out.push_back(std::move(piece));
  }
  return out;
}

std::vector<formats::NewTensor> safetensors_of(const std::vector<Piece>& pieces) {
  std::vector<formats::NewTensor> out;
  for (const Piece& piece : pieces) {
    const codec::WeightTypeInfo& facts = codec::info(piece.type);
    const std::string& name = piece.wanted.name;
    formats::NewTensor tensor{.name = name,
                              .dtype = dtype_of(piece.type),
                              .shape = piece.wanted.shape,
                              .size_bytes = piece.n_rows * piece.row_bytes()};
    if (!piece.is_planar()) {
      out.push_back(std::move(tensor));
      continue;
    }
    tensor.shape.back() = piece.row_bytes() / 4;  // in words
    out.push_back(tensor);
    tensor.dtype = "BF16";
    tensor.shape.back() = piece.n_in / facts.group;
    tensor.size_bytes = piece.n_rows * piece.scale_row_bytes();
    const std::string module = name.substr(0, name.size() - kSuffix.size());
    for (const char* const plane : {".scales", ".biases"}) {
      tensor.name = module + plane;
      out.push_back(tensor);
    }
  }
  return out;
}

Status write_pieces(formats::TensorFile& file,
                    const std::vector<Piece>& pieces,
                    std::uint64_t seed,
                    int n_threads,
                    const ProgressSink& progress) {
  ThreadPool pool(n_threads);
  std::uint64_t done = 0, total = 0;
  for (const Piece& piece : pieces) total += piece.n_elements();
  for (const Piece& piece : pieces) {
    BlockEncoder encoder(pool, piece, seed);
    for (std::uint64_t first = 0; first < piece.n_rows; first += encoder.block_rows()) {
      const std::uint64_t n = std::min(encoder.block_rows(), piece.n_rows - first);
      encoder.encode(first, n);
      KVASIR_TRY_DO(encoder.write(file, first, n));
      done += n * piece.n_in;
      if (progress) progress({.stage = "writing weights", .done = done, .total = total});
    }
  }
  return {};
}

}  // namespace kvasir::synth
