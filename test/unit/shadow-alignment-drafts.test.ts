import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  firstOutlook,
  mustRestart,
  needsGuess,
  nextStep,
  oldestPosition,
  outlookAfter,
  passOf,
  REMEMBERED_RANGES,
  takesMainToken,
  type AlignmentPeriods,
  type AlignmentStep,
  type PassOutlook,
  type ShadowProgress,
} from '../../shadow-node/predictor/alignment.js';
import { DraftingMain } from './drafting-main.js';

const MAIN_TOKEN = 1000;
const WRONG_TOKEN = 5000;

const period = fc.oneof(fc.constant(0), fc.constant(1), fc.integer({ min: 2, max: 5 }));
const situation = fc.record({
  promptTokens: fc.integer({ min: 1, max: 6 }),
  positionsLeft: fc.integer({ min: 0, max: 25 }),
  periods: fc.record({ token: fc.oneof(fc.constant(1), period), keyValue: period }),
  optimistic: fc.boolean(),
  rows: fc.integer({ min: 1, max: 5 }),
  maxRows: fc.integer({ min: 1, max: 6 }),
  wrong: fc.array(fc.integer({ min: 0, max: 3 }), { minLength: 1, maxLength: 30 }),
  events: fc.array(fc.constantFrom('main', 'start', 'end'), { maxLength: 200, size: 'max' }),
});
type Situation = typeof situation extends fc.Arbitrary<infer T> ? T : never;

/** A shadow without a model. It runs, guesses and starts again as the decisions say, and checks each step. */
class DecidedShadow {
  readonly main: DraftingMain;
  readonly mainTokens: number[];
  readonly ran: number[] = [];
  readonly periods: AlignmentPeriods;
  outlook: PassOutlook;
  guessedToken: number | null = null;
  restarts = 0;
  private running: { step: Extract<AlignmentStep, { tokenIds: number[] }>; branch: number; void: boolean } | null =
    null;
  private guesses = 0;
  private readonly prefillTokens: number;
  private readonly maxPositions: number;

  constructor(private readonly input: Situation) {
    const { promptTokens, positionsLeft, optimistic, rows } = input;
    this.periods = input.periods;
    this.prefillTokens = promptTokens;
    this.maxPositions = promptTokens + positionsLeft;
    const token = (position: number) => MAIN_TOKEN + position;
    this.main = new DraftingMain({ promptTokens, maxPositions: this.maxPositions, optimistic, rows, token });
    this.mainTokens = Array.from({ length: promptTokens }, (_, position) => token(position));
    this.outlook = firstOutlook(promptTokens);
  }

  announce(): boolean {
    const announced = this.main.next();
    if (announced === null) return false;
    this.outlook = outlookAfter(this.outlook, announced);
    const { position, tokenId } = announced;
    if (position < this.mainTokens.length) return true;
    this.mainTokens.push(tokenId);
    if (!mustRestart(announced, this.ran, this.input.promptTokens, this.periods)) return true;
    this.restarts += 1;
    this.ran.length = position;
    this.guessedToken = null;
    if (this.running !== null) this.running.void = true;
    return true;
  }

  /** Starts the next run; false: there is nothing to run. */
  start(): boolean {
    if (this.running !== null) return true;
    const step = nextStep(this.progress(), this.periods, this.input.maxRows);
    if (step.kind === 'wait' || step.kind === 'full') return false;
    this.check(step);
    this.ran.push(...step.tokenIds);
    this.guessedToken = null;
    this.running = { step, branch: this.outlook.branch, void: false };
    return true;
  }

  end(): void {
    const { running } = this;
    this.running = null;
    if (running === null || running.void) return;
    const position = this.ran.length;
    if (!needsGuess(position, this.progress(), this.periods)) return;
    const { wrong } = this.input;
    const isWrong = wrong[this.guesses++ % wrong.length] === 0;
    this.guessedToken = (isWrong ? WRONG_TOKEN : MAIN_TOKEN) + position;
    if (running.step.kind === 'prefill' || position < this.mainTokens.length) return;
    const passPosition = passOf(this.outlook, position).begin;
    this.main.takeDraft({ position, tokenId: this.guessedToken, branch: running.branch, passPosition, runUs: 1 });
  }

  private check(step: Extract<AlignmentStep, { tokenIds: number[] }>): void {
    const { promptTokens, optimistic } = this.input;
    assert.equal(step.position, this.ran.length, 'rows go on where the last pass ended');
    assert.ok(step.tokenIds.length >= 1 && step.tokenIds.length <= this.input.maxRows);
    assert.ok(step.position + step.tokenIds.length <= this.maxPositions);
    if (step.kind === 'prefill') return;
    const announced = this.mainTokens.length - 1;
    if (step.position > announced) {
      assert.equal(step.tokenIds.length, 1);
      const { begin, rows, nextRows } = this.outlook;
      const spoken = announced >= this.prefillTokens;
      const ahead = spoken ? begin + rows + (optimistic ? nextRows : 0) : 0;
      const due = takesMainToken(step.position, promptTokens, this.periods);
      assert.ok(step.position < ahead || (!due && step.position <= announced + 1), 'it runs no further than it may');
    }
    step.tokenIds.forEach((token, row) => {
      const position = step.position + row;
      if (position <= announced && takesMainToken(position, promptTokens, this.periods)) {
        assert.equal(token, MAIN_TOKEN + position);
      }
    });
  }

  private progress(): ShadowProgress {
    const { mainTokens, prefillTokens, guessedToken, maxPositions, outlook } = this;
    const { promptTokens, optimistic } = this.input;
    const nextPosition = this.ran.length;
    return { mainTokens, promptTokens, prefillTokens, nextPosition, guessedToken, maxPositions, outlook, optimistic };
  }
}

describe('shadow alignment with drafts and optimism', () => {
  it('runs in order and within its limit, and ends with main’s tokens wherever they are due', () => {
    fc.assert(
      fc.property(situation, (input) => {
        const shadow = new DecidedShadow(input);
        for (const event of input.events) {
          if (event === 'main') shadow.announce();
          else if (event === 'start') shadow.start();
          else shadow.end();
        }
        while (shadow.announce());
        for (let steps = 0; shadow.start(); steps += 1) {
          assert.ok(steps <= 2 * (input.promptTokens + input.positionsLeft), 'it comes to an end');
          shadow.end();
        }
        assert.equal(shadow.ran.length, input.promptTokens + input.positionsLeft);
        shadow.ran.forEach((token, position) => {
          if (position >= input.promptTokens && takesMainToken(position, input.promptTokens, input.periods)) {
            assert.equal(token, MAIN_TOKEN + position);
          }
        });
        if (input.periods.token === 0) assert.equal(shadow.restarts, 0, 'nothing is due');
      }),
      { numRuns: 1000 },
    );
  });

  it('never guesses or restarts with period 1, one position a pass and no optimism', () => {
    fc.assert(
      fc.property(situation, (any) => {
        const input = { ...any, periods: { token: 1, keyValue: 1 }, optimistic: false, rows: 1 };
        const shadow = new DecidedShadow(input);
        for (const event of input.events) {
          if (event === 'main') shadow.announce();
          else if (event === 'start') shadow.start();
          else shadow.end();
          assert.equal(shadow.guessedToken, null);
          assert.ok(shadow.ran.length <= shadow.mainTokens.length);
        }
        assert.equal(shadow.restarts, 0);
      }),
    );
  });

  it('forms passes without gap, and puts each position into one', () => {
    fc.assert(
      fc.property(situation, (input) => {
        const shadow = new DecidedShadow(input);
        for (const event of input.events) {
          if (event === 'main') shadow.announce();
          else if (event === 'start') shadow.start();
          else shadow.end();
          const planned = shadow.outlook.begin + shadow.outlook.rows + shadow.outlook.nextRows;
          for (let position = input.promptTokens; position <= planned; position += 1) {
            const { begin, rows } = passOf(shadow.outlook, position);
            assert.ok(begin <= position && position < begin + rows);
            assert.equal(passOf(shadow.outlook, begin).begin, begin);
          }
        }
      }),
      { numRuns: 200 },
    );
  });

  const outlook = (changes: Partial<PassOutlook>): PassOutlook => ({
    begin: 10,
    rows: 3,
    passed: [],
    begun: true,
    nextRows: 2,
    branch: 0,
    ...changes,
  });
  const announced = (position: number, rows: number, branch = 0) => ({
    position,
    tokenId: 1,
    rows,
    nextRows: 2,
    branch,
  });

  it('distinguishes correct drafts, wrong drafts, and tokens whose pass has yet to begin', () => {
    assert.deepEqual(outlookAfter(outlook({}), announced(11, 0)), outlook({}));
    const rejected = outlookAfter(outlook({}), announced(12, 0, 1));
    assert.deepEqual(rejected, {
      ...outlook({ begin: 12, rows: 2, begun: false, branch: 1 }),
      passed: [{ begin: 10, rows: 2 }],
    });
    const after = outlookAfter(outlook({}), announced(13, 0));
    assert.deepEqual([after.begin, after.rows, after.begun], [13, 2, false]);
    const begun = outlookAfter(after, announced(13, 1));
    assert.deepEqual([begun.begin, begun.rows, begun.begun], [13, 1, true]);
    assert.deepEqual(passOf(begun, 12), { begin: 10, rows: 3 });
    assert.deepEqual(passOf(begun, 9), { begin: 9, rows: 1 });
    assert.deepEqual(passOf(begun, 15), { begin: 14, rows: 2 });
    assert.deepEqual(passOf(begun, 16), { begin: 16, rows: 1 });
  });

  const step = (changes: Partial<ShadowProgress>, periods = { token: 1, keyValue: 1 }) =>
    nextStep(
      {
        mainTokens: Array.from({ length: 11 }, (_, position) => MAIN_TOKEN + position),
        promptTokens: 4,
        prefillTokens: 4,
        nextPosition: 11,
        guessedToken: 7,
        maxPositions: 40,
        outlook: outlook({}),
        optimistic: false,
        ...changes,
      },
      periods,
      8,
    );

  it('names the latest passes only, however rare those of several rows are', () => {
    let now = outlook({});
    let position = now.begin;
    for (let pass = 0; pass < 60; pass++) {
      const rows = pass % 40 === 0 ? 3 : 1;
      now = outlookAfter(now, announced(position, rows));
      position += rows;
      assert.ok(position - oldestPosition(now) <= REMEMBERED_RANGES + 2 + rows, `pass ${pass}`);
    }
    assert.deepEqual(now.passed, []);
  });

  it('drafts the positions of the pass that begins with main’s token, and then waits for the next', () => {
    assert.deepEqual(step({}), { kind: 'iterate', position: 11, tokenIds: [7], tokenFrom: 'shadow' });
    assert.equal(step({ nextPosition: 12 }).kind, 'iterate');
    assert.deepEqual(step({ nextPosition: 13 }), { kind: 'wait', reason: 'token' });
    assert.deepEqual(step({ nextPosition: 12, guessedToken: null }), { kind: 'wait', reason: 'token' });
  });

  it('runs through the next pass under optimism, whatever is due, and then waits for main', () => {
    assert.equal(step({ nextPosition: 14, optimistic: true }).kind, 'iterate');
    assert.deepEqual(step({ nextPosition: 15, optimistic: true }), { kind: 'wait', reason: 'lead' });
    const first = { ...firstOutlook(11), nextRows: 4 };
    const before = { nextPosition: 11, prefillTokens: 11, optimistic: true, outlook: first };
    assert.deepEqual(step(before), { kind: 'wait', reason: 'token' }, 'not before main’s first token');
  });

  it('starts again for a due token only', () => {
    const ran = [1, 2, 3, 4, 5, 6];
    const other = { position: 5, tokenId: 9 };
    assert.equal(mustRestart(other, ran, 4, { token: 1, keyValue: 0 }), true);
    assert.equal(mustRestart(other, ran, 4, { token: 2, keyValue: 0 }), false);
    assert.equal(mustRestart(other, ran, 4, { token: 0, keyValue: 0 }), false);
    assert.equal(mustRestart({ position: 5, tokenId: 6 }, ran, 4, { token: 1, keyValue: 0 }), false);
    assert.equal(mustRestart({ position: 6, tokenId: 9 }, ran, 4, { token: 1, keyValue: 0 }), false, 'not run yet');
  });
});
