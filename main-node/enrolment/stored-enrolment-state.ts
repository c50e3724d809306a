import { type AuthorityState, writeAuthorityRoster, writeTokens } from '../../engine/trust/authority-files.js';
import type { NodeTrust } from '../../engine/trust/node-trust.js';
import type { Roster } from '../../engine/trust/roster.js';
import type { TokenBook } from '../../engine/trust/token-book.js';
import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import type { Authority } from '../../shared/transport/trust/certificate.js';
import { isRefusal } from '../../shared/transport/trust/refusal.js';
import type { EnrolmentState } from './enrolment-state.js';

/** Main's authority, roster and tokens, in the files of its state directory. A roster counts when it is on the disk, and not before. */
export class StoredEnrolmentState implements EnrolmentState {
  /** @param trust main's own, which goes on with each new roster */
  constructor(
    private state: AuthorityState,
    private readonly stateDirectory: string,
    private readonly trust: NodeTrust,
    private readonly runtime: Runtime,
  ) {}

  get authority(): Authority {
    return this.state.authority;
  }

  get roster(): Roster {
    return this.state.roster;
  }

  get tokens(): TokenBook {
    return this.state.tokens;
  }

  async saveRoster(roster: Roster): Promise<void> {
    const { stateDirectory, authority } = this;
    const signed = await this.runtime.outside(() => writeAuthorityRoster(stateDirectory, roster, authority));
    this.state = { ...this.state, roster };
    const taken = this.trust.takeRoster(signed);
    assertInvariant(!isRefusal(taken), "Main's own trust takes the roster that main has signed.");
  }

  async saveTokens(tokens: TokenBook): Promise<void> {
    await this.runtime.outside(() => writeTokens(this.stateDirectory, tokens));
    this.state = { ...this.state, tokens };
  }
}
