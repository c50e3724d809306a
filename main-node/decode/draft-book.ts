import type { DraftToken } from '../../shared/wire/messages.js';

/** Most drafts that are remembered at a time; shadow runs ahead through one pass at most. */
export const MAX_REMEMBERED_DRAFTS = 64;

/** The outcome of a draft once main has sampled its position; 'none': there was no draft. */
export type DraftVerdict = 'right' | 'wrong' | 'none';

/** Drafts that a pass can use. */
export interface FollowingDrafts {
  /** Tokens at the positions after the pass's first, in order, without a gap. */
  tokenIds: number[];
  /** Shadow plans the position after them for a later pass, so no more drafts come for this one. */
  complete: boolean;
}

/**
 * Shadow's drafts for one sequence, by position. A draft depends on all tokens before it: when one of them proves wrong, the branch grows by one, and
 * drafts of an older branch are dropped (proto/odmoe/v1/shadow.proto).
 */
export class DraftBook {
  private readonly drafts = new Map<number, DraftToken>();
  private wrongDrafts = 0;

  /** Drafts that proved wrong so far. */
  get branch(): number {
    return this.wrongDrafts;
  }

  /**
   * Returns false for a draft of an older branch, of a position that main has passed, or too far ahead. `next`: the position that main samples next.
   */
  arrive(draft: DraftToken, next: number): boolean {
    if (draft.branch !== this.wrongDrafts) return false;
    if (draft.position < next || draft.position >= next + MAX_REMEMBERED_DRAFTS) return false;
    this.drafts.set(draft.position, draft);
    return true;
  }

  get size(): number {
    return this.drafts.size;
  }

  has(position: number): boolean {
    return this.drafts.has(position);
  }

  /**
   * Main's token at `position` is known. `wasRun`: main's pass has run this token, as a draft of another source may be. Then the pass goes on, and a
   * wrong draft of shadow does not change the branch: shadow starts again by itself.
   */
  settle(position: number, tokenId: number, wasRun = false): DraftVerdict {
    const draft = this.drafts.get(position);
    for (const known of [...this.drafts.keys()]) if (known <= position) this.drafts.delete(known);
    if (draft === undefined) return 'none';
    if (draft.tokenId === tokenId) return 'right';
    if (wasRun) this.drafts.clear();
    else this.provedWrong();
    return 'wrong';
  }

  /** A draft that a pass ran is not the token that main sampled: all drafts that depend on it are void. */
  provedWrong(): void {
    this.wrongDrafts += 1;
    this.drafts.clear();
  }

  /** Shadow starts again at `position`. */
  restart(position: number): void {
    for (const known of [...this.drafts.keys()]) if (known >= position) this.drafts.delete(known);
  }

  clear(): void {
    this.drafts.clear();
  }

  /** Drafts for a pass that begins at `position`, whose token is known; at most `limit` of them. */
  following(position: number, limit: number): FollowingDrafts {
    const tokenIds: number[] = [];
    for (let next = position + 1; tokenIds.length < limit; next++) {
      const draft = this.drafts.get(next);
      if (draft === undefined) return { tokenIds, complete: false };
      if (draft.passPosition > position) return { tokenIds, complete: true };
      tokenIds.push(draft.tokenId);
    }
    return { tokenIds, complete: true };
  }
}
