// Web storage that never throws: where it is blocked, values last as long as the page.

const fallback = new Map();

/** @param kind 'local' or 'session' */
export function readSlot(kind, name) {
  try {
    return window[`${kind}Storage`].getItem(name);
  } catch {
    return fallback.get(name) ?? null;
  }
}

export function writeSlot(kind, name, text) {
  try {
    window[`${kind}Storage`].setItem(name, text);
  } catch {
    fallback.set(name, text);
  }
}
