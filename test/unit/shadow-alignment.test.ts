import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  firstOutlook,
  iterationOf,
  keyValuesDueBelow,
  MAX_LEAD_TOKENS,
  nextStep,
  outlookAfter,
  takesMainToken,
  type AlignmentPeriods,
  type AlignmentStep,
  type PassOutlook,
  type ShadowProgress,
} from '../../shadow-node/predictor/alignment.js';

/** Main's token at a position is 1000 + position, shadow's own 5000 + position. */
const MAIN_TOKEN = 1000;
const OWN_TOKEN = 5000;

class ShadowModel {
  nextPosition = 0;
  guessedToken: number | null = null;
  readonly mainTokens: number[];
  readonly optimistic = false;
  outlook: PassOutlook;

  constructor(
    readonly promptTokens: number,
    readonly prefillTokens: number,
    readonly maxPositions: number,
    readonly periods: AlignmentPeriods,
  ) {
    this.mainTokens = Array.from({ length: prefillTokens }, (_, position) => MAIN_TOKEN + position);
    this.outlook = firstOutlook(prefillTokens);
  }

  get announced(): number {
    return this.mainTokens.length - 1;
  }

  announce(): void {
    const position = this.mainTokens.length;
    if (position >= this.maxPositions) return;
    const tokenId = MAIN_TOKEN + position;
    this.mainTokens.push(tokenId);
    this.outlook = outlookAfter(this.outlook, { position, tokenId, rows: 1, nextRows: 1, branch: 0 });
  }

  step(maxRows: number): AlignmentStep {
    const step = nextStep(this.progress(), this.periods, maxRows);
    if (step.kind === 'prefill' || step.kind === 'iterate') this.advance(step);
    return step;
  }

  private progress(): ShadowProgress {
    return { ...this, mainTokens: this.mainTokens };
  }

  private advance(step: Extract<AlignmentStep, { kind: 'prefill' | 'iterate' }>): void {
    assert.equal(step.position, this.nextPosition, 'positions come in order, none twice');
    this.nextPosition += step.tokenIds.length;
    const own = !takesMainToken(this.nextPosition, this.promptTokens, this.periods);
    this.guessedToken = this.nextPosition >= this.prefillTokens && own ? OWN_TOKEN + this.nextPosition : null;
  }
}

const period = fc.oneof(fc.constant(0), fc.constant(1), fc.integer({ min: 2, max: 9 }));
const situation = fc.record({
  promptTokens: fc.integer({ min: 1, max: 12 }),
  alreadyGenerated: fc.integer({ min: 0, max: 6 }),
  positionsLeft: fc.integer({ min: 0, max: 30 }),
  periods: fc.record({ token: period, keyValue: period }),
  maxRows: fc.integer({ min: 1, max: 8 }),
  /** true: main announces its next token; false: the shadow takes a step. */
  events: fc.array(fc.boolean(), { maxLength: 120 }),
});

function create(input: typeof situation extends fc.Arbitrary<infer T> ? T : never): ShadowModel {
  const prefillTokens = input.promptTokens + input.alreadyGenerated;
  return new ShadowModel(input.promptTokens, prefillTokens, prefillTokens + input.positionsLeft, input.periods);
}

describe('shadow alignment with one position a pass and no optimism', () => {
  it('takes the token that the period names, whatever the order of events', () => {
    fc.assert(
      fc.property(situation, (input) => {
        const shadow = create(input);
        for (const announce of input.events) {
          if (announce) {
            shadow.announce();
            continue;
          }
          const step = shadow.step(input.maxRows);
          if (step.kind !== 'iterate') continue;
          step.tokenIds.forEach((token, row) => {
            const position = step.position + row;
            const main = takesMainToken(position, input.promptTokens, input.periods);
            assert.equal(step.tokenFrom, main ? 'main' : 'shadow');
            assert.equal(token, (main ? MAIN_TOKEN : OWN_TOKEN) + position);
          });
        }
      }),
    );
  });

  it('never runs further ahead of main than allowed, nor runs an aligned iteration before main’s token', () => {
    fc.assert(
      fc.property(situation, (input) => {
        const shadow = create(input);
        for (const announce of input.events) {
          if (announce) {
            shadow.announce();
            continue;
          }
          const step = shadow.step(input.maxRows);
          if (step.kind !== 'iterate') continue;
          assert.ok(step.position <= shadow.announced + MAX_LEAD_TOKENS);
          assert.ok(step.position < shadow.maxPositions);
          const due = keyValuesDueBelow(step.position, input.promptTokens, input.periods);
          if (due === step.position) assert.ok(step.position <= shadow.announced);
        }
      }),
    );
  });

  it('runs several rows only over positions that main has passed, and main’s current position alone', () => {
    fc.assert(
      fc.property(situation, (input) => {
        const shadow = create(input);
        for (const announce of input.events) {
          if (announce) {
            shadow.announce();
            continue;
          }
          const step = shadow.step(input.maxRows);
          if (step.kind !== 'iterate' || step.tokenIds.length === 1) continue;
          assert.ok(step.tokenIds.length <= input.maxRows);
          assert.ok(step.position + step.tokenIds.length <= shadow.announced);
        }
      }),
    );
  });

  it('never gets stuck: it reaches the last position once main has announced every token', () => {
    fc.assert(
      fc.property(situation, (input) => {
        const shadow = create(input);
        for (const announce of input.events) {
          if (announce) shadow.announce();
          else shadow.step(input.maxRows);
        }
        while (shadow.mainTokens.length < shadow.maxPositions) shadow.announce();
        for (let steps = 0; steps <= shadow.maxPositions; steps += 1) {
          if (shadow.step(input.maxRows).kind === 'full') break;
        }
        assert.equal(shadow.nextPosition, shadow.maxPositions);
      }),
    );
  });

  it('prefills the prompt, and the tokens after it, in pieces and without waiting', () => {
    const shadow = new ShadowModel(3, 7, 20, { token: 1, keyValue: 1 });
    assert.deepEqual(shadow.step(4), { kind: 'prefill', position: 0, tokenIds: [1000, 1001, 1002, 1003] });
    assert.deepEqual(shadow.step(4), { kind: 'prefill', position: 4, tokenIds: [1004, 1005, 1006] });
    assert.deepEqual(shadow.step(4), { kind: 'wait', reason: 'token' });
  });

  it('aligns the first iteration whatever the period, and none when it is 0', () => {
    for (const token of [1, 2, 7]) assert.equal(takesMainToken(5, 5, { token, keyValue: 0 }), true);
    assert.equal(takesMainToken(5, 5, { token: 0, keyValue: 0 }), false);
    assert.equal(iterationOf(5, 5), 1);
    const taken = [5, 6, 7, 8, 9, 10, 11].map((position) => takesMainToken(position, 5, { token: 3, keyValue: 0 }));
    assert.deepEqual(taken, [true, false, false, true, false, false, true]);
  });

  it('makes an unaligned shadow wait for main after its lead', () => {
    const shadow = new ShadowModel(2, 2, 20, { token: 0, keyValue: 0 });
    shadow.step(8);
    assert.equal(shadow.step(8).kind, 'iterate');
    assert.deepEqual(shadow.step(8), { kind: 'wait', reason: 'lead' });
    shadow.announce();
    assert.equal(shadow.step(8).kind, 'iterate');
    assert.deepEqual(shadow.step(8), { kind: 'wait', reason: 'lead' });
  });

  it('makes a key-value aligned iteration wait for main even when its token is the shadow’s own', () => {
    const shadow = new ShadowModel(2, 2, 20, { token: 0, keyValue: 2 });
    shadow.step(8);
    assert.deepEqual(shadow.step(8), { kind: 'wait', reason: 'keyValues' });
    shadow.announce();
    assert.equal(shadow.step(8).kind, 'iterate');
    assert.equal(shadow.step(8).kind, 'iterate', 'the second iteration is not aligned and may lead');
    assert.deepEqual(shadow.step(8), { kind: 'wait', reason: 'keyValues' });
  });

  it('requests main’s rows at the iterations of the period', () => {
    const due = [3, 4, 5, 6, 7, 8].map((position) => keyValuesDueBelow(position, 4, { token: 1, keyValue: 2 }));
    assert.deepEqual(due, [3, 4, 4, 6, 6, 8]);
    assert.equal(keyValuesDueBelow(9, 4, { token: 1, keyValue: 0 }), 0);
  });

  it('catches up with main in one pass, then runs main’s current position', () => {
    const shadow = new ShadowModel(2, 2, 30, { token: 1, keyValue: 1 });
    shadow.step(16);
    for (let count = 0; count < 6; count += 1) shadow.announce();
    assert.deepEqual(shadow.step(16), {
      kind: 'iterate',
      position: 2,
      tokenIds: [1002, 1003, 1004, 1005, 1006],
      tokenFrom: 'main',
    });
    assert.deepEqual(shadow.step(16), { kind: 'iterate', position: 7, tokenIds: [1007], tokenFrom: 'main' });
    assert.deepEqual(shadow.step(16), { kind: 'wait', reason: 'token' });
  });
});
