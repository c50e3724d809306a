import { startFeed } from './event-feed.js';

const SESSION_URL = '/cluster/session';
/** No script sees the cookie, so the page remembers by itself that there is one. */
const MEMORY_KEY = 'odmoe-logged-in';

/** Whether this browser has logged in, and not out again. */
export function hasLoggedIn(): boolean {
  try {
    return localStorage.getItem(MEMORY_KEY) !== null;
  } catch {
    // A browser may forbid the page to remember anything.
    return false;
  }
}

function remember(isLoggedIn: boolean): void {
  try {
    if (isLoggedIn) localStorage.setItem(MEMORY_KEY, 'yes');
    else localStorage.removeItem(MEMORY_KEY);
  } catch {
    // The page then offers no way to log out; the cookie ends by itself.
  }
}

/** Main then gives the browser a cookie, which no script can read. Returns what went wrong; null: nothing. */
export async function logIn(key: string): Promise<string | null> {
  try {
    const { ok, status } = await fetch(SESSION_URL, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ key }),
    });
    if (!ok) return status === 401 ? 'Main does not know this key.' : `Main refused with HTTP status ${status}.`;
  } catch {
    return 'Main does not answer.';
  }
  remember(true);
  startFeed();
  return null;
}

/** The page is then loaded again, so that nothing of the cluster or the chat stays in it. Whether main did end the session. */
export async function logOut(): Promise<boolean> {
  try {
    const { ok } = await fetch(SESSION_URL, { method: 'DELETE' });
    if (!ok) return false;
  } catch {
    return false;
  }
  remember(false);
  location.reload();
  return true;
}
