// Conversations, kept in this browser only (IndexedDB). Bounded: the longest unused are dropped.
// Two object stores, so that the list is read without the texts: `heads` and `bodies`, one id.

const kName = 'kvasir-chat';
const kMaxConversations = 200;
const kMaxCharacters = 24_000_000;

export class Store {
  /** @param db an open IDBDatabase, or null: then nothing outlives the page */
  constructor(db) {
    this.db = db;
    this.memory = new Map();
  }

  static async open(name = kName) {
    try {
      const request = indexedDB.open(name, 1);
      request.onupgradeneeded = () => {
        request.result.createObjectStore('heads', { keyPath: 'id' });
        request.result.createObjectStore('bodies', { keyPath: 'id' });
      };
      return new Store(await done(request));
    } catch {
      return new Store(null);
    }
  }

  get lasting() {
    return this.db !== null;
  }

  /** Heads {id, title, updated, size}, the latest first. */
  async list() {
    const heads = this.db ? await this.ask('heads', (s) => s.getAll()) : [...this.memory.values()].map(headOf);
    return heads.sort((a, b) => b.updated - a.updated);
  }

  async get(id) {
    if (!this.db) return this.memory.get(id) || null;
    return (await this.ask('bodies', (s) => s.get(id))) || null;
  }

  async put(conversation) {
    if (!this.db) {
      this.memory.set(conversation.id, conversation);
      return;
    }
    const transaction = this.db.transaction(['heads', 'bodies'], 'readwrite');
    transaction.objectStore('heads').put(headOf(conversation));
    transaction.objectStore('bodies').put(conversation);
    transaction.commit();  // at once: a page that is closing runs no more callbacks
    await finished(transaction);
    await this.prune(conversation.id);
  }

  async remove(id) {
    this.memory.delete(id);
    if (!this.db) return;
    const transaction = this.db.transaction(['heads', 'bodies'], 'readwrite');
    transaction.objectStore('heads').delete(id);
    transaction.objectStore('bodies').delete(id);
    await finished(transaction);
  }

  async prune(keep) {
    const heads = await this.list();
    for (const id of beyondBounds(heads, keep)) await this.remove(id);
  }

  ask(store, question) {
    return done(question(this.db.transaction(store).objectStore(store)));
  }
}

/** Ids to drop so that count and characters stay within the bounds. */
export function beyondBounds(heads, keep, maxCount = kMaxConversations, maxCharacters = kMaxCharacters) {
  const out = [];
  let count = 0;
  let characters = 0;
  for (const head of heads) {
    count++;
    characters += head.size;
    if ((count > maxCount || characters > maxCharacters) && head.id !== keep) out.push(head.id);
  }
  return out;
}

function headOf(conversation) {
  const { id, title, updated } = conversation;
  return { id, title, updated, size: JSON.stringify(conversation).length };
}

function done(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
    request.onblocked = () => reject(new Error('blocked'));
  });
}

function finished(transaction) {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onabort = () => reject(transaction.error);
    transaction.onerror = () => reject(transaction.error);
  });
}
