// First stage of the output: what is reasoning and what is not (TXT-50, 51). A file per family of
// markers.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "text/output/markers.h"
#include "text/output_parser.h"

namespace kvasir::text::out {

// Takes the parts in the order of the stream.
class SplitSink {
 public:
  virtual ~SplitSink() = default;
  virtual void reasoning(std::string_view text) = 0;  // markers as their text
  virtual void outside(std::string_view tagged) = 0;
};

class Splitter {
 public:
  virtual ~Splitter() = default;
  virtual void push(std::string_view tagged, SplitSink& sink) = 0;
  virtual void finish(SplitSink& sink) = 0;
  virtual bool is_reasoning() const = 0;
};

struct SplitterOptions {
  ReasoningFormat format = ReasoningFormat::none;
  bool starts_open = false;
  bool keeps_markers = false;  // reasoning goes out with its markers, nothing is dropped
};

// Adds the markers it needs.
std::unique_ptr<Splitter> make_think_splitter(MarkerSet& markers, const SplitterOptions& options);
std::unique_ptr<Splitter> make_harmony_splitter(MarkerSet& markers, const SplitterOptions& options);

}  // namespace kvasir::text::out
