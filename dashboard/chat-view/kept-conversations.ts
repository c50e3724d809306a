import type { PageConversation, Turn } from './conversation.js';
import {
  foundPlace,
  headOf,
  KEPT_BYTES_LIMIT,
  keptConversation,
  keptTurn,
  mergedHead,
  restoredTurns,
  type KeptHead,
  type KeptTokens,
  type KeptTurn,
} from './kept-form.js';

/** The browser keeps the database for the page's origin alone. */
const DATABASE = 'odmoe-chat';
const VERSION = 1;
const HEADS = 'heads';
const TURNS = 'turns';
const TOKENS = 'tokens';
const STORES = [HEADS, TURNS, TOKENS];
/** No tab runs so long with a copy of a deleted conversation. */
const DELETED_HEADS_MS = 30 * 24 * 3_600_000;

let opened: Promise<IDBDatabase> | null = null;

function database(): Promise<IDBDatabase> {
  opened ??= openDatabase();
  // A later try may succeed.
  opened.catch(() => (opened = null));
  return opened;
}

function openDatabase(): Promise<IDBDatabase> {
  const request = indexedDB.open(DATABASE, VERSION);
  request.onupgradeneeded = () => {
    request.result.createObjectStore(HEADS, { keyPath: 'id' });
    for (const name of [TURNS, TOKENS]) request.result.createObjectStore(name, { keyPath: ['conversation', 'id'] });
  };
  return resultOf(request).then((found) => {
    const forget = (): void => {
      opened = null;
    };
    found.onclose = forget;
    found.onversionchange = () => {
      found.close();
      forget();
    };
    return found;
  });
}

function resultOf<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error ?? new Error('the browser gives no reason'));
  });
}

/** Resolves when the browser has stored all changes of the transaction. */
function committed(transaction: IDBTransaction): Promise<void> {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onabort = () => reject(transaction.error ?? new Error('the browser gives no reason'));
  });
}

/** All records of one conversation in a store whose keys begin with the conversation's id. */
function rangeOf(id: string): IDBKeyRange {
  return IDBKeyRange.bound([id], [id, []]);
}

export async function readHeads(): Promise<KeptHead[]> {
  const transaction = (await database()).transaction(HEADS);
  return resultOf(transaction.objectStore(HEADS).getAll() as IDBRequest<KeptHead[]>);
}

/** Null: it is not kept, or was deleted. `nextId`: the tab's own first id. */
export async function readConversation(id: string, nextId: number): Promise<PageConversation | null> {
  const transaction = (await database()).transaction(STORES);
  const [head, turns, tokens] = await Promise.all([
    resultOf(transaction.objectStore(HEADS).get(id) as IDBRequest<KeptHead | undefined>),
    resultOf(transaction.objectStore(TURNS).getAll(rangeOf(id)) as IDBRequest<KeptTurn[]>),
    resultOf(transaction.objectStore(TOKENS).getAll(rangeOf(id)) as IDBRequest<KeptTokens[]>),
  ]);
  return head === undefined || head.deletedMs !== null ? null : keptConversation(head, turns, tokens, nextId);
}

export async function readTurns(id: string, turnIds: readonly number[]): Promise<Turn[]> {
  const transaction = (await database()).transaction([TURNS, TOKENS]);
  const recordsOf = async <T>(store: string): Promise<T[]> => {
    const requests = turnIds.map((turnId) => transaction.objectStore(store).get([id, turnId]) as IDBRequest<T>);
    return (await Promise.all(requests.map(resultOf))).filter((record) => record !== undefined);
  };
  return restoredTurns(...(await Promise.all([recordsOf<KeptTurn>(TURNS), recordsOf<KeptTokens>(TOKENS)])));
}

/** "deleted": another tab has deleted the conversation. "full": KEPT_BYTES_LIMIT has no room for it. In both cases nothing was written. */
export type WriteOutcome = 'kept' | 'deleted' | 'full';

/**
 * Writes the head, and those turns that are newer than the kept ones. `bringsBack`: also where the conversation was deleted.
 * Rejects with the browser's error, for example a QuotaExceededError; nothing was written then.
 */
export async function writeConversation(
  conversation: PageConversation,
  turnIds: ReadonlySet<number>,
  nowMs: number,
  bringsBack: boolean,
): Promise<WriteOutcome> {
  const transaction = (await database()).transaction(STORES, 'readwrite');
  const written = committed(transaction);
  // An error before the end is thrown below; this one would be told twice.
  written.catch(() => undefined);
  try {
    const outcome = await putRecords(transaction, conversation, turnIds, nowMs, bringsBack);
    await written;
    return outcome;
  } catch (thrown) {
    // The browser has ended the transaction if the error is its own.
    if (transaction.error === null) transaction.abort();
    throw thrown;
  }
}

async function putRecords(
  transaction: IDBTransaction,
  conversation: PageConversation,
  turnIds: ReadonlySet<number>,
  nowMs: number,
  bringsBack: boolean,
): Promise<WriteOutcome> {
  const heads = transaction.objectStore(HEADS);
  const all = await resultOf(heads.getAll() as IDBRequest<KeptHead[]>);
  const known = all.find(({ id }) => id === conversation.id);
  const isDeleted = known !== undefined && known.deletedMs !== null;
  if (isDeleted && !bringsBack) return 'deleted';
  const newer = await newerRecords(transaction, conversation, turnIds);
  const moreBytes = newer.reduce((sum, { kept, oldBytes }) => sum + kept.bytes - oldBytes, 0);
  const usedBytes = all.reduce((sum, { bytes }) => sum + bytes, 0);
  if (moreBytes > 0 && usedBytes + moreBytes > KEPT_BYTES_LIMIT) return 'full';
  for (const { kept, tokens } of newer) {
    transaction.objectStore(TURNS).put(kept);
    if (tokens !== null) transaction.objectStore(TOKENS).put(tokens);
  }
  const head = headOf(conversation, nowMs, (known?.bytes ?? 0) + moreBytes);
  heads.put(mergedHead(newer.length === 0 ? { ...head, changedMs: known?.changedMs ?? nowMs } : head, known));
  return 'kept';
}

interface NewerRecord {
  kept: KeptTurn;
  tokens: KeptTokens | null;
  oldBytes: number;
}

async function newerRecords(
  transaction: IDBTransaction,
  { id, all }: PageConversation,
  turnIds: ReadonlySet<number>,
): Promise<NewerRecord[]> {
  const turns = all.filter((turn) => turnIds.has(turn.id));
  const store = transaction.objectStore(TURNS);
  const olds = await Promise.all(
    turns.map((turn) => resultOf(store.get([id, turn.id]) as IDBRequest<KeptTurn | undefined>)),
  );
  return turns.flatMap((turn, index) => {
    const old = olds[index];
    if (old !== undefined && old.turn.revision >= turn.revision) return [];
    return [{ ...keptTurn(id, turn), oldBytes: old?.bytes ?? 0 }];
  });
}

/** Deletes the texts of the conversations. Their heads stay empty for a while, and without a title. */
export async function deleteConversations(ids: readonly string[], nowMs: number): Promise<void> {
  const transaction = (await database()).transaction(STORES, 'readwrite');
  const written = committed(transaction);
  for (const id of ids) {
    for (const name of [TURNS, TOKENS]) transaction.objectStore(name).delete(rangeOf(id));
    const gone: KeptHead = {
      id,
      title: '',
      titledMs: 0,
      opening: '',
      changedMs: nowMs,
      deletedMs: nowMs,
      bytes: 0,
      chosen: {},
      notSent: [],
    };
    transaction.objectStore(HEADS).put(gone);
  }
  await written;
}

/** Removes what is left of conversations that were deleted long ago. */
export async function removeOldHeads(nowMs: number): Promise<void> {
  const heads = await readHeads();
  const transaction = (await database()).transaction(HEADS, 'readwrite');
  const written = committed(transaction);
  for (const { id, deletedMs } of heads) {
    if (deletedMs !== null && nowMs - deletedMs > DELETED_HEADS_MS) transaction.objectStore(HEADS).delete(id);
  }
  await written;
}

/** The kept conversations that have the words in a question or an answer, with the first place of each. */
export async function searchTexts(words: string): Promise<Map<string, string>> {
  const transaction = (await database()).transaction(TURNS);
  const request = transaction.objectStore(TURNS).openCursor();
  const found = new Map<string, string>();
  return new Promise((resolve, reject) => {
    request.onerror = () => reject(request.error ?? new Error('the browser gives no reason'));
    request.onsuccess = () => {
      const cursor = request.result;
      if (cursor === null) return resolve(found);
      const { conversation, turn } = cursor.value as KeptTurn;
      const place = found.has(conversation) ? null : foundPlace(turn.text, words);
      if (place !== null) found.set(conversation, place);
      cursor.continue();
    };
  });
}
