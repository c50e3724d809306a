import { DraftTrial } from '../../main-node/drafting/draft-trial.js';
import assert from 'node:assert/strict';
import fc from 'fast-check';
import { WallRuntime } from '../../shared/base/runtime/wall-runtime.js';
import type { DraftSource } from '../../main-node/decode/draft-source.js';
import { ForcedSource, onlyToken } from '../../main-node/decode/forced-source.js';
import { lookupAcceptance, lookupKind, LookupSource } from '../../main-node/decode/lookup-source.js';
import { OwnDrafts } from '../../main-node/decode/own-drafts.js';
import type { PassLine } from '../../main-node/drafting/choose-drafts.js';
import type { OutputConstraint } from '../../engine/output-format/output-constraint.js';

const LIVING = new AbortController().signal;
const CHEAP: PassLine = { passMs: 10, rowMs: 0.1 };
const DEAR: PassLine = { passMs: 10, rowMs: 10 };
const PROMPT = [1, 2, 3, 4, 5, 6, 7, 8];

function ownDrafts(
  sources: readonly DraftSource[],
  {
    rows = 'auto',
    lastPosition = 1000,
    line = CHEAP,
  }: { rows?: number | 'auto'; lastPosition?: number; line?: PassLine | null } = {},
): OwnDrafts {
  return new OwnDrafts(sources, { rows, lastPosition }, new DraftTrial(), () => line);
}

function lookup(): LookupSource {
  return new LookupSource(lookupAcceptance());
}

/** Writes the tokens as an answer after the prompt, and returns the numbers of passes and of accepted drafts. */
async function write(drafts: OwnDrafts, answer: readonly number[]): Promise<{ passes: number; accepted: number }> {
  drafts.begin(PROMPT);
  const counts = { passes: 0, accepted: 0 };
  for (let next = 0; next < answer.length;) {
    const position = PROMPT.length + next;
    drafts.settled(position, answer[next] ?? 0, false);
    const proposed = await drafts.propose(position, 15, 0, LIVING);
    const ran = [answer[next] ?? 0, ...proposed.map(({ tokenId }) => tokenId)];
    drafts.passed(position, ran, { drafts: proposed.length, passMs: 10 + 0.1 * proposed.length });
    counts.passes += 1;
    next += 1;
    for (let row = 1; row < ran.length && next < answer.length && ran[row] === answer[next]; row++, next++) {
      drafts.settled(PROMPT.length + next, answer[next] ?? 0, true);
      counts.accepted += 1;
    }
  }
  return counts;
}

describe("main's own drafts", () => {
  it('of a text that repeats are accepted', async () => {
    const answer = Array.from({ length: 96 }, (_, place) => PROMPT[place % PROMPT.length] ?? 0);
    const { passes, accepted } = await write(ownDrafts([lookup()]), answer);
    assert.ok(passes <= answer.length / 3, `${passes} passes`);
    assert.equal(passes + accepted, answer.length);
  });

  it('are none where nothing repeats, where rows are dear, and before a pass was measured', async () => {
    const fresh = Array.from({ length: 40 }, (_, place) => 100 + place);
    assert.equal((await write(ownDrafts([lookup()]), fresh)).passes, fresh.length);
    const repeats = Array.from({ length: 40 }, (_, place) => PROMPT[place % 8] ?? 0);
    assert.equal((await write(ownDrafts([lookup()], { line: DEAR }), repeats)).passes, repeats.length);
    assert.equal((await write(ownDrafts([lookup()], { line: null }), repeats)).passes, repeats.length);
    assert.equal((await write(ownDrafts([lookup()], { rows: 1 }), repeats)).passes, repeats.length);
    assert.equal((await write(ownDrafts([]), repeats)).passes, repeats.length);
  });

  it('never reach behind the last position, the limit of the pass or the wanted rows', async () => {
    await fc.assert(
      fc.asyncProperty(fc.nat(20), fc.nat(20), fc.integer({ min: 2, max: 16 }), async (left, limit, rows) => {
        const drafts = ownDrafts([lookup()], { rows, lastPosition: 9 + left });
        drafts.begin([...PROMPT, 1]);
        drafts.settled(9, 2, false);
        const proposed = await drafts.propose(9, limit, 0, LIVING);
        assert.equal(proposed.length, Math.min(left, limit, rows - 1));
      }),
    );
  });

  /** A source whose drafts take effort; it writes down how many it was asked for. */
  const costly = (chances: readonly number[], draftMs: number): DraftSource & { asked: number[]; makes: boolean } => {
    const asked: number[] = [];
    return {
      maker: 'mtp',
      asked,
      makes: true,
      effort: { draftMs, expected: (limit) => chances.slice(0, limit) },
      begin: () => undefined,
      settled: () => undefined,
      propose(_position, limit) {
        asked.push(limit);
        if (!this.makes) return { tokenIds: [], chances: [] };
        return { tokenIds: Array<number>(limit).fill(7), chances: chances.slice(0, limit) };
      },
    };
  };

  it('are made by a source with effort only where they pay for it, too', async () => {
    const chances = [0.9, 0.9, 0.9, 0.1];
    for (const [draftMs, made] of [
      [0, [3]],
      [5, [2]],
      [20, []],
    ] as const) {
      const source = costly(chances, draftMs);
      await ownDrafts([source], { line: { passMs: 10, rowMs: 1 } }).propose(8, 15, 0, LIVING);
      assert.deepEqual(source.asked, made, `${draftMs} ms for a draft`);
    }
    const asked = costly(chances, 20);
    await ownDrafts([asked], { rows: 5 }).propose(8, 15, 0, LIVING);
    assert.deepEqual(asked.asked, [4], 'a set number of rows is wanted at any cost');
  });

  it('are not made with effort where others are expected to do better without', async () => {
    const [surer, effort] = [costly([1, 1, 1, 1], 0), costly([0.9, 0.9], 1)];
    const cheap: DraftSource = { ...surer, maker: 'lookup', propose: (at, limit) => surer.propose(at, limit, LIVING) };
    delete (cheap as { effort?: unknown }).effort;
    const proposed = await ownDrafts([cheap, effort]).propose(8, 4, 0, LIVING);
    assert.deepEqual([proposed.length, proposed[0]?.maker, effort.asked], [4, 'lookup', []]);
  });

  it('that were made and did not run count as drafts, so that their time is not taken for that of plain passes', async () => {
    const trial = new DraftTrial();
    const judged: string[] = [];
    trial.passed = (drafts, tokens, passMs) => void judged.push(`${drafts} ${tokens} ${passMs}`);
    const source = costly([0.9, 0.9], 0);
    const drafts = new OwnDrafts([source], { rows: 'auto', lastPosition: 99 }, trial, () => CHEAP);
    const pass = async (): Promise<void> => {
      await drafts.propose(8, 2, 0, LIVING);
      drafts.passed(8, [1], { drafts: 0, passMs: 30 });
    };
    await pass();
    source.makes = false;
    await pass();
    await drafts.propose(8, 0, 0, LIVING);
    drafts.passed(8, [1], { drafts: 0, passMs: 10 });
    await drafts.propose(8, 0, 0, LIVING);
    assert.deepEqual(judged, ['2 1 30', '0 1 10'], 'and a pass that waited for none is not judged');
  });

  it('of lookup know their chances before any of them has run', () => {
    const source = lookup();
    source.begin([1, 2, 9, 1, 2]);
    const before = source.propose(4, 1).chances[0] ?? 0;
    for (let round = 0, position = 5; round < 20; round++) {
      for (const tokenId of [9, 1, 2]) {
        source.settled(position, tokenId);
        source.propose(position, 1);
        position += 1;
      }
    }
    const { tokenIds, chances } = source.propose(64, 4);
    assert.deepEqual(tokenIds, [9, 1, 2, 9]);
    assert.ok((chances[0] ?? 0) > 0.9 && (chances[0] ?? 0) > before, `${before}, then ${chances.join()}`);
  });

  it('of lookup behind a single token are proposed once such drafts have proved right', () => {
    const shared = lookupAcceptance();
    const answered = (from: number, step: number): readonly number[] => {
      const source = new LookupSource(shared);
      source.begin([1, 2, 3, 4, 5, 0]);
      source.settled(6, from);
      const { tokenIds } = source.propose(6, 2);
      source.settled(7, from + step);
      return tokenIds;
    };
    assert.deepEqual(answered(1, 1), []);
    for (let round = 0; round < 4; round++) answered(2, 1);
    assert.deepEqual(answered(3, 1), [4, 5]);
    for (let round = 0; round < 20; round++) answered(4, -1);
    assert.deepEqual(answered(3, 1), []);
  });

  it('of lookup begin with what the client expects', () => {
    const source = new LookupSource(lookupAcceptance(), [11, 12, 13, 14]);
    source.begin([1, 2, 3]);
    source.settled(3, 11);
    source.settled(4, 12);
    assert.deepEqual(source.propose(4, 5).tokenIds, [13, 14]);
  });

  it('of lookup have kinds by the length of the match', () => {
    assert.deepEqual([1, 2, 3, 4, 7, 8, 15, 16, 32].map(lookupKind), [0, 1, 1, 2, 2, 3, 3, 4, 4]);
  });
});

/** A format whose answer is these tokens; null: any token of four. */
function formatOf(...tokens: readonly (number | null)[]): OutputConstraint {
  return {
    *allowed(answer) {
      const only = tokens[answer.length];
      return Uint8Array.from({ length: 4 }, (_, id) => (only === null || only === id ? 1 : 0));
    },
    isClosed: (answer) => answer.length === tokens.length,
  };
}

describe('drafts that a format forces', () => {
  const runtime = new WallRuntime();
  const sourceOf = (constraint: OutputConstraint, maxPositions = 100, endTokenIds: number[] = []): ForcedSource =>
    new ForcedSource({ constraint, promptTokens: 2, maxPositions, endTokenIds }, runtime);

  it('are all tokens up to the next choice', async () => {
    const source = sourceOf(formatOf(1, 2, 3, null, 1));
    source.begin();
    source.settled(2, 1);
    assert.deepEqual(await source.propose(2, 9, LIVING), { tokenIds: [2, 3], chances: [1, 1] });
    assert.deepEqual((await source.propose(2, 1, LIVING)).tokenIds, [2]);
    source.settled(3, 2);
    source.settled(4, 3);
    assert.deepEqual((await source.propose(4, 9, LIVING)).tokenIds, []);
  });

  it('end with the format, with the room, and before an end token', async () => {
    assert.deepEqual((await sourceOf(formatOf(1, 2)).propose(2, 9, LIVING)).tokenIds, [1, 2]);
    assert.deepEqual((await sourceOf(formatOf(1, 2, 3), 4).propose(2, 9, LIVING)).tokenIds, [1, 2]);
    assert.deepEqual((await sourceOf(formatOf(1, 2, 3), 100, [2]).propose(2, 9, LIVING)).tokenIds, [1]);
  });

  it('are none where a mask has no token, or several', () => {
    assert.equal(onlyToken(Uint8Array.of(0, 0, 0)), null);
    assert.equal(onlyToken(Uint8Array.of(0, 1, 1)), null);
    assert.equal(onlyToken(Uint8Array.of(0, 0, 1)), 2);
  });
});
