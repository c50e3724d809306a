import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import type { ApiKeys, KeyOwner } from './api-keys.js';

/** The cookie by which a browser shows that it has sent a valid key before. */
export const SESSION_COOKIE = 'odmoe_session';
/** The age at which a session ends. All sessions also end when main restarts. */
export const SESSION_AGE_S = 7 * 24 * 60 * 60;
/** Most sessions at a time; one more ends the oldest. */
export const MAX_SESSIONS = 256;

const COOKIE_FORM = new RegExp(`(?:^|;)\\s*${SESSION_COOKIE}=([\\w-]{1,128})(?:;|$)`);

interface KeySession {
  /** The digest of the session's token; the token itself is not stored. */
  digest: Buffer;
  endsMs: number;
  /** The owner of its key. */
  owner: KeyOwner;
}

/**
 * Sessions of browsers that have sent a valid key once. A browser holds a token in place of the key, in a cookie that no script can read.
 * With SameSite=Strict, pages of other sites cannot send it. But a page of another port of the same host counts as the same site.
 * So a cookie counts only in requests of the page's own origin, which browsers name in each request that changes something.
 */
export class KeySessions {
  /** Ordered from the oldest to the newest. */
  private readonly sessions: KeySession[] = [];

  constructor(
    private readonly keys: ApiKeys,
    private readonly runtime: Pick<Runtime, 'nowMs' | 'randomId'>,
  ) {}

  /** The session's token; null: the key is wrong. */
  begin(key: string): string | null {
    const owner = this.keys.ownerOf(key);
    if (owner === null) return null;
    this.expire();
    if (this.sessions.length >= MAX_SESSIONS) this.sessions.shift();
    const token = this.runtime.randomId();
    const endsMs = this.runtime.nowMs() + SESSION_AGE_S * 1000;
    this.sessions.push({ digest: digestOf(token), endsMs, owner });
    return token;
  }

  /** The owner of the session's key; null: there is no such session. Takes the same time for wrong tokens as for right ones. */
  ownerOf(token: string | null): KeyOwner | null {
    this.expire();
    const given = digestOf(token ?? '');
    let found: KeyOwner | null = null;
    for (const { digest, owner } of this.sessions) found = timingSafeEqual(digest, given) ? owner : found;
    return token === null ? null : found;
  }

  end(token: string | null): void {
    const given = digestOf(token ?? '');
    const at = this.sessions.findIndex(({ digest }) => timingSafeEqual(digest, given));
    if (at >= 0) this.sessions.splice(at, 1);
  }

  private expire(): void {
    const nowMs = this.runtime.nowMs();
    while (this.sessions[0] !== undefined && this.sessions[0].endsMs <= nowMs) this.sessions.shift();
  }
}

function digestOf(token: string): Buffer {
  return createHash('sha256').update(token).digest();
}

/** The token in a request's cookie; null: none. */
export function sessionTokenOf({ cookie }: IncomingHttpHeaders): string | null {
  return COOKIE_FORM.exec(cookie ?? '')?.[1] ?? null;
}

/** The header that stores the token in the browser, or deletes it where `token` is null. There is no TLS here, so it is not marked Secure. */
export function sessionCookie(token: string | null): string {
  const attributes = token === null ? '; Max-Age=0' : `${token}; Max-Age=${SESSION_AGE_S}`;
  return `${SESSION_COOKIE}=${attributes}; Path=/; HttpOnly; SameSite=Strict`;
}
