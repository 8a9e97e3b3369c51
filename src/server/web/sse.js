// Server-sent events, from text pieces cut anywhere.

/** Feed pieces with push(); each call returns the events that became complete. */
export class SseParser {
  constructor() {
    this.rest = '';
    this.data = [];
  }

  /** @returns {Array} {data: string} for an event, {comment: string} for a comment line */
  push(piece) {
    const events = [];
    const lines = (this.rest + piece).split('\n');
    this.rest = lines.pop();
    for (let line of lines) {
      if (line.endsWith('\r')) line = line.slice(0, -1);
      this.take(line, events);
    }
    return events;
  }

  take(line, events) {
    if (line === '') {
      if (this.data.length > 0) events.push({ data: this.data.join('\n') });
      this.data = [];
    } else if (line.startsWith(':')) {
      events.push({ comment: line.slice(1).trim() });
    } else if (line.startsWith('data:')) {
      this.data.push(line.slice(line[5] === ' ' ? 6 : 5));
    }
  }
}
