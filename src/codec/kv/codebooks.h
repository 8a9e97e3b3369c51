// Codebooks of turbo values (KV-15): the Lloyd-Max optimum for N(0, 1), the unique fixed point
// where each centroid is the mean of its cell and each border the middle between centroids.
// Symmetric about 0: the positive halves, ascending, rounded from f64. kv_codec_test.cpp recomputes
// them.
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace kvasir::codec {

inline constexpr float kCentroids2[] = {0.452780038f, 1.51041758f};
inline constexpr float kBorders2[] = {0.981598794f};

inline constexpr float kCentroids3[] = {0.24509418f, 0.756005287f, 1.34390926f, 2.15194559f};
inline constexpr float kBorders3[] = {0.500549734f, 1.04995728f, 1.74792755f};

inline constexpr float kCentroids4[] = {0.128395036f, 0.388048291f, 0.656759143f, 0.942340434f,
                                        1.25623119f,  1.6180464f,   2.06901717f,  2.73258948f};
inline constexpr float kBorders4[] = {0.258221656f, 0.522403717f, 0.799549758f, 1.09928584f,
                                      1.4371388f,   1.84353185f,  2.40080333f};

inline constexpr float kCentroids5[] = {0.0658896565f, 0.198051825f, 0.331378311f, 0.466699511f,
                                        0.604933619f,  0.747135699f, 0.894565105f, 1.0487833f,
                                        1.21180439f,   1.38634038f,  1.57622802f,  1.78723323f,
                                        2.02872849f,   2.31773949f,  2.69111967f,  3.26073241f};
inline constexpr float kBorders5[] = {0.131970748f, 0.264715075f, 0.399038911f, 0.53581655f,
                                      0.676034689f, 0.820850432f, 0.971674204f, 1.13029385f,
                                      1.29907238f,  1.48128426f,  1.68173063f,  1.9079808f,
                                      2.17323399f,  2.50442958f,  2.97592592f};

inline constexpr float kCentroids8[] = {
    0.0084461933f, 0.0253393836f, 0.0422349833f, 0.0591346025f, 0.0760398582f, 0.0929523557f,
    0.10987372f,   0.126805589f,  0.143749565f,  0.160707325f,  0.177680492f,  0.194670752f,
    0.211679757f,  0.228709206f,  0.245760784f,  0.262836218f,  0.279937238f,  0.297065586f,
    0.314223051f,  0.331411391f,  0.348632425f,  0.365888f,     0.383179963f,  0.400510222f,
    0.417880654f,  0.435293198f,  0.452749878f,  0.470252663f,  0.487803608f,  0.50540477f,
    0.523058295f,  0.540766299f,  0.558531046f,  0.576354682f,  0.594239593f,  0.612188101f,
    0.630202591f,  0.648285508f,  0.666439414f,  0.684666753f,  0.702970266f,  0.721352637f,
    0.739816606f,  0.758365035f,  0.777000844f,  0.795727015f,  0.814546704f,  0.833463013f,
    0.852479279f,  0.871598899f,  0.890825272f,  0.910162032f,  0.929612935f,  0.949181795f,
    0.968872607f,  0.988689363f,  1.00863647f,   1.02871823f,   1.04893923f,   1.06930423f,
    1.08981812f,   1.11048603f,   1.1313132f,    1.15230536f,   1.17346823f,   1.19480765f,
    1.21632993f,   1.23804176f,   1.25994992f,   1.28206146f,   1.30438399f,   1.32692528f,
    1.34969366f,   1.37269759f,   1.39594638f,   1.41944933f,   1.44321656f,   1.46725869f,
    1.49158704f,   1.51621318f,   1.54114962f,   1.56640983f,   1.59200752f,   1.61795783f,
    1.6442765f,    1.67098033f,   1.69808745f,   1.72561693f,   1.75358939f,   1.78202689f,
    1.81095314f,   1.8403933f,    1.87037516f,   1.90092802f,   1.9320842f,    1.96387839f,
    1.9963485f,    2.02953577f,   2.06348515f,   2.09824657f,   2.13387418f,   2.17042828f,
    2.20797539f,   2.2465899f,    2.28635454f,   2.32736182f,   2.36971712f,   2.41353869f,
    2.4589622f,    2.50614262f,   2.55525947f,   2.60652137f,   2.66017389f,   2.71650767f,
    2.77587056f,   2.83868575f,   2.90547299f,   2.97688222f,   3.05374193f,   3.13713264f,
    3.22850013f,   3.32984853f,   3.44407177f,   3.57558799f,   3.73166633f,   3.92563772f,
    4.18659544f,   4.60353565f};
inline constexpr float kBorders8[] = {
    0.0168927889f, 0.0337871835f, 0.0506847948f, 0.0675872341f, 0.0844961032f, 0.101413041f,
    0.11833965f,   0.135277569f,  0.152228445f,  0.169193909f,  0.186175629f,  0.203175247f,
    0.220194474f,  0.237234995f,  0.254298508f,  0.271386713f,  0.288501412f,  0.305644304f,
    0.322817206f,  0.340021908f,  0.357260197f,  0.374533981f,  0.391845077f,  0.409195423f,
    0.426586926f,  0.444021553f,  0.461501271f,  0.479028136f,  0.496604174f,  0.514231503f,
    0.531912267f,  0.549648643f,  0.567442834f,  0.585297167f,  0.603213847f,  0.621195376f,
    0.63924408f,   0.657362461f,  0.675553083f,  0.69381851f,   0.712161422f,  0.730584621f,
    0.749090791f,  0.76768291f,   0.7863639f,    0.805136859f,  0.824004829f,  0.842971146f,
    0.862039089f,  0.881212056f,  0.900493681f,  0.919887483f,  0.939397395f,  0.959027171f,
    0.978780985f,  0.998662889f,  1.01867735f,   1.03882873f,   1.05912173f,   1.07956111f,
    1.10015202f,   1.12089968f,   1.14180934f,   1.16288674f,   1.18413794f,   1.20556879f,
    1.22718585f,   1.2489959f,    1.27100575f,   1.29322278f,   1.31565464f,   1.33830953f,
    1.36119568f,   1.38432193f,   1.4076978f,    1.43133295f,   1.45523763f,   1.47942281f,
    1.50390005f,   1.5286814f,    1.55377972f,   1.57920873f,   1.60498273f,   1.63111722f,
    1.65762842f,   1.68453395f,   1.71185219f,   1.73960316f,   1.7678082f,    1.79649007f,
    1.82567322f,   1.85538423f,   1.88565159f,   1.91650617f,   1.94798136f,   1.98011339f,
    2.01294208f,   2.04651046f,   2.08086586f,   2.11606026f,   2.15215111f,   2.18920183f,
    2.22728276f,   2.2664721f,    2.3068583f,    2.34853959f,   2.39162803f,   2.43625045f,
    2.48255229f,   2.53070092f,   2.58089042f,   2.63334775f,   2.68834066f,   2.74618912f,
    2.80727816f,   2.87207937f,   2.94117761f,   3.01531196f,   3.09543729f,   3.18281627f,
    3.27917433f,   3.38696003f,   3.50982976f,   3.65362716f,   3.82865191f,   4.05611658f,
    4.39506531f};

// All 2^bits centroids ascending and the borders between them.
template <std::size_t N>
struct Codebook {
  std::array<float, 2 * N> centroids{};
  std::array<float, 2 * N - 1> borders{};

  constexpr Codebook(const float (&half)[N], const float (&half_borders)[N - 1]) {
    for (std::size_t i = 0; i < N; ++i) {
      centroids[N + i] = half[i];
      centroids[N - 1 - i] = -half[i];
    }
    for (std::size_t i = 0; i + 1 < N; ++i) {
      borders[N + i] = half_borders[i];
      borders[N - 2 - i] = -half_borders[i];
    }
  }
};

inline constexpr Codebook kCodebook2(kCentroids2, kBorders2);
inline constexpr Codebook kCodebook3(kCentroids3, kBorders3);
inline constexpr Codebook kCodebook4(kCentroids4, kBorders4);
inline constexpr Codebook kCodebook5(kCentroids5, kBorders5);
inline constexpr Codebook kCodebook8(kCentroids8, kBorders8);

struct CodebookView {
  std::span<const float> centroids;  // [2^bits]; empty: no codebook of that many bits
  std::span<const float> borders;    // [2^bits - 1]
};

constexpr CodebookView codebook_of(int bits) noexcept {
  switch (bits) {
    case 2:
      return {kCodebook2.centroids, kCodebook2.borders};
    case 3:
      return {kCodebook3.centroids, kCodebook3.borders};
    case 4:
      return {kCodebook4.centroids, kCodebook4.borders};
    case 5:
      return {kCodebook5.centroids, kCodebook5.borders};
    case 8:
      return {kCodebook8.centroids, kCodebook8.borders};
    default:
      return {};
  }
}

}  // namespace kvasir::codec
