import { httpStatusWords } from './http-status-words.js';
import { keyOfLink } from '../../shared/wire/page-link.js';
import { startFeed } from './event-feed.js';

const SESSION_URL = '/cluster/session';
/** Scripts cannot see the cookie, so the page stores a mark that there is one. */
const MEMORY_KEY = 'odmoe-logged-in';

/** Tells whether this browser has logged in, and not logged out since. */
export function hasLoggedIn(): boolean {
  try {
    return localStorage.getItem(MEMORY_KEY) !== null;
  } catch {
    // A browser may forbid the page to store anything.
    return false;
  }
}

function remember(isLoggedIn: boolean): void {
  try {
    if (isLoggedIn) localStorage.setItem(MEMORY_KEY, 'yes');
    else localStorage.removeItem(MEMORY_KEY);
  } catch {
    // The page then has no button to log out; the cookie expires by itself.
  }
}

/** Logs in: main sets a cookie that no script can read. Returns the error's text; null: it succeeded. */
export async function logIn(key: string): Promise<string | null> {
  try {
    const { ok, status } = await fetch(SESSION_URL, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ key }),
    });
    if (!ok) return status === 401 ? 'Main does not know this key.' : httpStatusWords(status);
  } catch {
    return 'Main does not answer.';
  }
  remember(true);
  startFeed();
  return null;
}

/** Logs in with the key that stands in the page's address, and takes it out of the address, which others may see on the screen or get as a link. */
export async function logInByLink(): Promise<void> {
  const key = keyOfLink(location.hash);
  if (key === null) return;
  history.replaceState(null, '', location.pathname);
  await logIn(key);
}

/**
 * Logs out and loads the page again, so that its memory has no data of the cluster or the chat. `beforeReload` is called when main has
 * ended the session. Returns whether both have succeeded.
 */
export async function logOut(beforeReload: () => Promise<void>): Promise<boolean> {
  try {
    const { ok } = await fetch(SESSION_URL, { method: 'DELETE' });
    if (!ok) return false;
    await beforeReload();
  } catch {
    return false;
  }
  remember(false);
  location.reload();
  return true;
}
