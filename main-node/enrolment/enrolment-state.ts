import type { Roster } from '../../engine/trust/roster.js';
import type { TokenBook } from '../../engine/trust/token-book.js';
import type { Authority } from '../../shared/transport/trust/certificate.js';

/** Main's part of its cluster's trust. Only the enrolment desk changes it, one change after the other. */
export interface EnrolmentState {
  readonly authority: Authority;
  /** The newest roster. */
  readonly roster: Roster;
  readonly tokens: TokenBook;
  /** Signs, writes and shows a roster. Resolves when it is on the disk to stay. */
  saveRoster(roster: Roster): Promise<void>;
  /** Writes the tokens. Resolves when they are on the disk to stay. */
  saveTokens(tokens: TokenBook): Promise<void>;
}
