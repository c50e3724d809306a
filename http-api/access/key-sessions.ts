import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import type { ApiKeys } from './api-keys.js';

/** Of the cookie by which a browser shows that it has once brought a key. */
export const SESSION_COOKIE = 'odmoe_session';
/** So long a session lasts; main forgets all of them when it is started again. */
export const SESSION_AGE_S = 7 * 24 * 60 * 60;
/** Sessions at a time; one more ends the oldest. */
export const MAX_SESSIONS = 256;

const COOKIE_FORM = new RegExp(`(?:^|;)\\s*${SESSION_COOKIE}=([\\w-]{1,128})(?:;|$)`);

interface KeySession {
  /** Of its token; no more is kept of it. */
  digest: Buffer;
  endsMs: number;
  /** Of its key (ApiKeys.clientOf). */
  client: string;
}

/**
 * Browsers that have brought a key once. A browser holds a token in place of the key, in a cookie that no script can read: SameSite=Strict
 * keeps it back from pages of other sites. A page of another port of the same host is of the same site, though; so a cookie counts only
 * in requests of the page's own origin, which browsers name in each that changes something.
 */
export class KeySessions {
  /** The oldest first. */
  private readonly sessions: KeySession[] = [];

  constructor(
    private readonly keys: ApiKeys,
    private readonly runtime: Pick<Runtime, 'nowMs' | 'randomId'>,
  ) {}

  /** The session's token; null: the key is a wrong one. */
  begin(key: string): string | null {
    if (!this.keys.admits(key)) return null;
    this.expire();
    if (this.sessions.length >= MAX_SESSIONS) this.sessions.shift();
    const token = this.runtime.randomId();
    const endsMs = this.runtime.nowMs() + SESSION_AGE_S * 1000;
    this.sessions.push({ digest: digestOf(token), endsMs, client: this.keys.clientOf(key) });
    return token;
  }

  /** Whose key the session began with, as ApiKeys.clientOf; null: there is no such session. Takes as long for a wrong token as for a right one. */
  clientOf(token: string | null): string | null {
    this.expire();
    const given = digestOf(token ?? '');
    let found: string | null = null;
    for (const { digest, client } of this.sessions) found = timingSafeEqual(digest, given) ? client : found;
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

/** The token that a browser brings; null: none. */
export function sessionTokenOf({ cookie }: IncomingHttpHeaders): string | null {
  return COOKIE_FORM.exec(cookie ?? '')?.[1] ?? null;
}

/** Has a browser keep the token, or forget it where it is null. There is no TLS here, so the cookie is not marked Secure. */
export function sessionCookie(token: string | null): string {
  const kept = token === null ? '; Max-Age=0' : `${token}; Max-Age=${SESSION_AGE_S}`;
  return `${SESSION_COOKIE}=${kept}; Path=/; HttpOnly; SameSite=Strict`;
}
