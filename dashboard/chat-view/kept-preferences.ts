import { storedSettings, type TypedSettings } from './chat-settings.js';
import type { PageConversation } from './conversation.js';

const SETTINGS_KEY = 'odmoe-chat-settings';
const KEEPS_KEY = 'odmoe-chat-keeps';
const OPEN_KEY = 'odmoe-chat-open';
const LEFT_KEY = 'odmoe-chat-left';

/** Reads from the browser's storage; null: nothing is there, or the browser forbids the page to store anything. */
function stored(storage: () => Storage, key: string): string | null {
  try {
    return storage().getItem(key);
  } catch {
    return null;
  }
}

/** Writes to the browser's storage. Returns whether it has room and lets the page; without it the value lasts until the page is loaded again. */
function store(storage: () => Storage, key: string, value: string | null): boolean {
  try {
    if (value === null) storage().removeItem(key);
    else storage().setItem(key, value);
    return true;
  } catch {
    return false;
  }
}

/** Local: for all tabs, until it is deleted. Session: for this tab, also when it is loaded again. */
const local = (): Storage => localStorage;
const session = (): Storage => sessionStorage;

/** Tells whether conversations and settings are kept in this browser. */
export function rememberedKeeping(): boolean {
  return stored(local, KEEPS_KEY) !== 'no';
}

export function rememberKeeping(keeps: boolean): void {
  store(local, KEEPS_KEY, keeps ? null : 'no');
}

export function rememberedSettings(): TypedSettings {
  try {
    return storedSettings(JSON.parse(stored(local, SETTINGS_KEY) ?? '{}'));
  } catch {
    return storedSettings({});
  }
}

/** Null: forgets them. */
export function rememberSettings(settings: TypedSettings | null): void {
  store(local, SETTINGS_KEY, settings === null ? null : JSON.stringify(settings));
}

/** The conversation that this tab showed before it was loaded again; null: none. */
export function rememberedOpen(): string | null {
  return stored(session, OPEN_KEY);
}

export function rememberOpen(conversation: string | null): void {
  store(session, OPEN_KEY, conversation);
}

/** Leaves what has to be kept yet to the next load of this tab, since nothing else is written so fast. Returns whether it has room. */
export function rememberLeft(conversations: readonly PageConversation[]): boolean {
  return store(session, LEFT_KEY, conversations.length === 0 ? null : JSON.stringify(conversations));
}

/** What the load before has left, once. */
export function takeLeft(): PageConversation[] {
  const left = stored(session, LEFT_KEY);
  store(session, LEFT_KEY, null);
  try {
    return JSON.parse(left ?? '[]') as PageConversation[];
  } catch {
    return [];
  }
}
