import assert from 'node:assert/strict';
import fc from 'fast-check';
import { chooseExperts } from '../../shared/decisions/slices/choose-experts.js';
import { LogicalCache, type CacheShape } from '../../shared/decisions/slices/logical-cache.js';
import {
  LogicalSequence,
  type SequenceRules,
  type SlicedExecution,
} from '../../shared/decisions/slices/logical-sequence.js';
import { FREE_STEPS, LEVERS, MissBudget, pulledRouting } from '../../shared/decisions/slices/miss-budget.js';
import { LOWER_FETCHES, type LowerFetch, type Routing } from '../../shared/settings/logical-rules.js';
import { CACHE_STARTS, cacheContents, PromptChoices } from '../../shared/decisions/slices/warm-cache.js';

/** One layer of experts whose upper slices have 4 bytes and whose lower slices have 3. */
function shapeOf(capacityBytes: number, layers = 1, experts = 6): CacheShape {
  return { layers, experts, capacityBytes, upperBytes: 4, lowerBytes: 3 };
}

function cacheOf(capacityBytes: number, uppers: readonly number[], lowers: readonly number[] = []): LogicalCache {
  const cache = new LogicalCache(shapeOf(capacityBytes));
  cache.fill({ upper: uppers, lower: lowers });
  return cache;
}

describe('the logical cache of slices', () => {
  it('lets the upper slice go that was used longest ago', () => {
    const cache = cacheOf(12, [0, 1, 2]);
    cache.use(0, 'upper');
    cache.use(3, 'upper');
    assert.deepEqual(cache.contents, { upper: [2, 0, 3], lower: [] });
    assert.equal(cache.usedBytes, 12);
  });

  it('lets lower slices go before any upper one, the one that was used longest ago first', () => {
    // 4 + 4 + 3 + 3 = 14 bytes
    const cache = cacheOf(14, [0, 1], [1, 0]);
    cache.use(2, 'upper');
    assert.deepEqual(cache.contents, { upper: [0, 1, 2], lower: [] });
    cache.use(3, 'upper');
    assert.deepEqual(cache.contents, { upper: [1, 2, 3], lower: [] });
  });

  it('gives a younger lower slice the place of an older one, and never that of an upper slice', () => {
    const cache = cacheOf(11, [0, 1], [0]);
    cache.use(1, 'lower');
    assert.deepEqual(cache.contents, { upper: [0, 1], lower: [1] });
    const full = cacheOf(8, [0, 1]);
    full.use(1, 'lower');
    assert.deepEqual(full.contents, { upper: [0, 1], lower: [] });
  });

  it('keeps no slice that is larger than it, and no lower slice without its upper one', () => {
    const small = cacheOf(3, []);
    small.use(0, 'upper');
    small.use(0, 'lower');
    assert.deepEqual(small.contents, { upper: [], lower: [] });
  });

  const uses = fc.array(fc.tuple(fc.nat(5), fc.boolean()), { maxLength: 60 });
  const capacity = fc.integer({ min: 0, max: 45 });

  it('never holds more than its capacity, nor a lower slice without its upper one', () => {
    fc.assert(
      fc.property(capacity, uses, (bytes, used) => {
        const cache = cacheOf(bytes, []);
        for (const [expert, both] of used) {
          const before = cache.contents;
          cache.use(expert, 'upper');
          if (both) cache.use(expert, 'lower');
          const { upper, lower } = cache.contents;
          assert.ok(cache.usedBytes <= bytes);
          assert.equal(cache.usedBytes, 4 * upper.length + 3 * lower.length);
          assert.equal(new Set(upper).size, upper.length);
          assert.ok(lower.every((one) => upper.includes(one)));
          const upperLeft = before.upper.some((one) => !upper.includes(one));
          assert.ok(!upperLeft || lower.every((one) => one === expert), 'an upper slice left before a lower one');
        }
      }),
    );
  });

  it('holds what a list of slices in the order of their use would hold', () => {
    fc.assert(
      fc.property(capacity, uses, (bytes, used) => {
        const cache = cacheOf(bytes, []);
        let [upper, lower]: [number[], number[]] = [[], []];
        for (const [expert, both] of used) {
          if (4 > bytes) continue;
          upper = [...upper.filter((one) => one !== expert), expert];
          while (4 * upper.length + 3 * lower.length > bytes) {
            if (lower.length > 0) lower = lower.slice(1);
            else upper = upper.slice(1);
          }
          const fits = lower.includes(expert) || 4 * upper.length + 3 <= bytes;
          if (both && fits) lower = [...lower.filter((one) => one !== expert), expert];
          while (4 * upper.length + 3 * lower.length > bytes) lower = lower.slice(1);
          cache.use(expert, 'upper');
          if (both) cache.use(expert, 'lower');
          assert.deepEqual(cache.contents, { upper, lower });
        }
      }),
    );
  });
});

describe('the choice of experts', () => {
  const scores = [0.4, 0.1, 0.2, 0.1, 0.15, 0.05];
  const logits = scores.map(Math.log);
  const choose = (routing: Routing, cached: readonly number[], meanRange = 2): number[] =>
    chooseExperts(routing, { logits, scores }, 3, { isCached: (expert) => cached.includes(expert), meanRange });

  it('by top-k takes the highest scores, and of equal ones the lower number', () => {
    assert.deepEqual(choose({ kind: 'top-k' }, [5]), [0, 2, 4]);
    const view = { isCached: () => false, meanRange: 0 };
    assert.deepEqual(chooseExperts({ kind: 'top-k' }, { logits, scores }, 4, view), [0, 2, 4, 1]);
  });

  it('by a cumulative threshold prefers cached experts among the candidates alone', () => {
    // 0.4 + 0.2 + 0.15 + 0.1 reaches 0.8: experts 0, 2, 4 and 1.
    assert.deepEqual(choose({ kind: 'cumulative', mass: 0.8, kept: 1 }, [1, 3, 5]), [0, 2, 1]);
    assert.deepEqual(choose({ kind: 'cumulative', mass: 0.8, kept: 0 }, [1, 2, 4]), [2, 4, 1]);
    assert.deepEqual(choose({ kind: 'cumulative', mass: 0.5, kept: 0 }, [1, 3, 5]), [0, 2, 4]);
  });

  it('by Cache-Prior lifts the logits of cached experts by lambda times the mean range', () => {
    // Expert 5 is ln 3 = 1.099 below expert 4, and ln 4 = 1.386 below expert 2.
    assert.deepEqual(choose({ kind: 'cache-prior', lambda: 0.5, kept: 1 }, [5]), [0, 2, 4]);
    assert.deepEqual(choose({ kind: 'cache-prior', lambda: 0.6, kept: 1 }, [5]), [0, 2, 5]);
    assert.deepEqual(choose({ kind: 'cache-prior', lambda: 0.6, kept: 1 }, [5], 1), [0, 2, 4]);
    assert.deepEqual(choose({ kind: 'cache-prior', lambda: 4, kept: 1 }, [1, 3, 5]), [0, 1, 3]);
    assert.deepEqual(choose({ kind: 'cache-prior', lambda: 4, kept: 0 }, [1, 3, 5]), [1, 3, 5]);
  });

  it('always has the first J, no expert twice, and the order of rank', () => {
    const routing = fc.oneof(
      fc.record({ kind: fc.constant('cumulative' as const), mass: fc.double({ min: 0, max: 1 }), kept: fc.nat(3) }),
      fc.record({ kind: fc.constant('cache-prior' as const), lambda: fc.double({ min: 0, max: 9 }), kept: fc.nat(3) }),
    );
    fc.assert(
      fc.property(routing, fc.subarray([0, 1, 2, 3, 4, 5]), (rule, cached) => {
        const chosen = choose(rule, cached);
        const ranked = [0, 2, 4, 1, 3, 5];
        assert.deepEqual(
          chosen,
          ranked.filter((expert) => chosen.includes(expert)),
        );
        assert.equal(chosen.length, 3);
        assert.deepEqual(chosen.slice(0, rule.kept), ranked.slice(0, rule.kept));
      }),
    );
  });
});

describe('the start of a logical cache', () => {
  /** Expert 0 four times with weight 0.9, expert 1 three times with 0.1, expert 2 once with 0.8, expert 3 twice with 0.2. */
  function promptChoices(): PromptChoices {
    const prompt = PromptChoices.none(6);
    const times: [number, number, number][] = [
      [0, 4, 0.9],
      [1, 3, 0.1],
      [2, 1, 0.8],
      [3, 2, 0.2],
    ];
    for (const [expert, count, weight] of times) for (let i = 0; i < count; i += 1) prompt.add(expert, weight);
    return prompt;
  }
  const contents = (capacityBytes: number): { upper: number[]; lower: number[] } => {
    const { upper, lower } = cacheContents('warm', promptChoices(), shapeOf(capacityBytes), { theta: 0.5, seed: 1 });
    return { upper: [...upper], lower: [...lower] };
  };

  it('that is warmed loses lower slices of low weights first, then experts that were rarely chosen', () => {
    assert.deepEqual(contents(28), { upper: [2, 3, 1, 0], lower: [2, 3, 1, 0] });
    assert.deepEqual(contents(27), { upper: [2, 3, 1, 0], lower: [2, 3, 0] });
    assert.deepEqual(contents(22), { upper: [2, 3, 1, 0], lower: [2, 0] });
    assert.deepEqual(contents(21), { upper: [3, 1, 0], lower: [0] });
    assert.deepEqual(contents(11), { upper: [1, 0], lower: [0] });
    assert.deepEqual(contents(8), { upper: [0], lower: [0] });
    assert.deepEqual(contents(3), { upper: [], lower: [] });
  });

  it('never has more bytes than its capacity, and the same seed gives the same random start', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: 45 }),
        fc.constantFrom(...CACHE_STARTS),
        fc.nat(9),
        (bytes, start, seed) => {
          const fill = (): LogicalCache => {
            const cache = new LogicalCache(shapeOf(bytes));
            const given = cacheContents(start, promptChoices(), shapeOf(bytes), { theta: 0.5, seed });
            cache.fill(given);
            assert.deepEqual(cache.contents, given);
            return cache;
          };
          assert.ok(fill().usedBytes <= bytes);
          assert.deepEqual(fill().contents, fill().contents);
        },
      ),
    );
  });

  it('of the last layer has both slices of what the prompt chose there', () => {
    const prompt = PromptChoices.none(6);
    for (const expert of [0, 1, 4, 5]) prompt.add(expert, 0.5);
    const shape = shapeOf(20, 2, 3);
    const { upper, lower } = cacheContents('last-layer', prompt, shape, { theta: 0.5, seed: 1 });
    assert.deepEqual(
      [upper, lower],
      [
        [4, 5],
        [4, 5],
      ],
    );
  });
});

describe('the miss budget', () => {
  const afterFreeSteps = (target: number): MissBudget => {
    const budget = new MissBudget(target);
    for (let step = 0; step < FREE_STEPS; step += 1) budget.endStep();
    return budget;
  };

  it('counts nothing in the first ten steps', () => {
    const budget = new MissBudget(0.05);
    for (let step = 0; step < 10; step += 1) {
      budget.ask(100);
      budget.fetch(100);
      assert.ok(budget.hasRoom);
      budget.endStep();
    }
    assert.deepEqual(budget.report, { lever: 'none', missShare: null, isMet: true });
    budget.ask(100);
    assert.deepEqual(budget.report, { lever: 'none', missShare: 0, isMet: true });
    budget.fetch(6);
    assert.deepEqual(budget.report, { lever: 'none', missShare: 0.06, isMet: false });
    assert.equal(budget.hasRoom, false);
  });

  it('pulls upper slices only, then a bias with J = 1, then J = 0, and lets go again', () => {
    const budget = afterFreeSteps(0.05);
    const names: string[] = [];
    for (let step = 0; step < LEVERS.length + 1; step += 1) {
      budget.ask(100);
      budget.fetch(50);
      budget.endStep();
      names.push(budget.report.lever);
    }
    const order = LEVERS.map(({ name }) => name);
    assert.deepEqual(names, [...order.slice(1), order.at(-1), order.at(-1)]);
    const kept = LEVERS.map(({ routing }) => (routing?.kind === 'cache-prior' ? routing.kept : null));
    assert.deepEqual(kept, [null, null, 1, 1, 1, 1, 1, 0, 0, 0]);
    budget.ask(1e6);
    budget.endStep();
    assert.equal(budget.report.lever, order.at(-2));
    assert.equal(budget.report.isMet, true);
  });
});

describe('a lever', () => {
  const routings = (asked: Routing): Routing[] => LEVERS.map((lever) => pulledRouting(asked, lever));

  it('leaves the routing that was asked for, then puts a bias in its place', () => {
    for (const asked of [{ kind: 'top-k' }, { kind: 'cumulative', mass: 0.9, kept: 1 }] as const) {
      const [none, upperOnly, ...biased] = routings(asked);
      assert.deepEqual([none, upperOnly], [asked, asked]);
      assert.deepEqual(
        biased,
        LEVERS.slice(2).map(({ routing }) => routing),
      );
    }
  });

  it('never weakens a bias that was asked for', () => {
    const kind = 'cache-prior';
    assert.deepEqual(routings({ kind, lambda: 1.5, kept: 0 }).at(2), { kind, lambda: 1.5, kept: 0 });
    assert.deepEqual(routings({ kind, lambda: 1.5, kept: 2 }).at(2), { kind, lambda: 1.5, kept: 1 });
    assert.deepEqual(routings({ kind, lambda: 1.5, kept: 2 }).at(-1), { kind, lambda: 4, kept: 0 });
  });
});

describe('a logical sequence', () => {
  const LAYERS = 2;
  const EXPERTS = 6;
  interface Case {
    rules: SequenceRules;
    prompt: number[][][];
    steps: number[][][];
  }
  const token = fc.array(fc.array(fc.integer({ min: -30, max: 30 }), { minLength: EXPERTS, maxLength: EXPERTS }), {
    minLength: LAYERS,
    maxLength: LAYERS,
  });
  const routing: fc.Arbitrary<Routing> = fc.constantFrom(
    { kind: 'top-k' },
    { kind: 'cumulative', mass: 0.9, kept: 1 },
    { kind: 'cache-prior', lambda: 0.5, kept: 1 },
  );
  const cases: fc.Arbitrary<Case> = fc.record({
    rules: fc.record({
      cache: fc.integer({ min: 0, max: 90 }).map((bytes) => shapeOf(bytes, LAYERS, EXPERTS)),
      expertsPerToken: fc.constant(2),
      routing,
      lowerFetch: fc.constantFrom(...LOWER_FETCHES),
      theta: fc.constantFrom(0, 0.6, 2),
      missTarget: fc.constantFrom(null, 0.01, 0.1, 0.5),
      start: fc.constantFrom(...CACHE_STARTS),
      seed: fc.nat(5),
    }),
    prompt: fc.array(token, { maxLength: 6 }),
    steps: fc.array(token, { maxLength: 30 }),
  });

  const scoresOf = (logits: readonly number[]): { logits: number[]; scores: number[] } => {
    const values = logits.map((logit) => logit / 10);
    const sum = values.reduce((added, value) => added + Math.exp(value), 0);
    return { logits: values, scores: values.map((value) => Math.exp(value) / sum) };
  };

  function prefilled({ rules, prompt }: Case): LogicalSequence {
    const sequence = LogicalSequence.begin(rules);
    for (const layers of prompt) layers.forEach((logits, layer) => sequence.takePrompt(layer, scoresOf(logits)));
    sequence.endPrompt();
    return sequence;
  }

  function run(sequence: LogicalSequence, steps: Case['steps']): SlicedExecution[] {
    return steps.flatMap((layers) => {
      sequence.beginStep();
      const executions = layers.flatMap((logits, layer) => sequence.runLayer(layer, scoresOf(logits)));
      sequence.endStep();
      return executions;
    });
  }

  it('decides the same for the same prompt and tokens', () => {
    fc.assert(
      fc.property(cases, (given) => {
        assert.deepEqual(run(prefilled(given), given.steps), run(prefilled(given), given.steps));
      }),
    );
  });

  it('that is cut back decides as if the steps had never been, and a fork, too', () => {
    fc.assert(
      fc.property(cases, fc.array(token, { minLength: 1, maxLength: 8 }), fc.nat(30), (given, drafts, at) => {
        const before = given.steps.slice(0, at);
        const after = given.steps.slice(before.length);
        const plain = prefilled(given);
        run(plain, before);
        const expected = run(plain, after);

        const cut = prefilled(given);
        run(cut, before);
        const fork = cut.fork();
        cut.forgetBefore(before.length - 2);
        run(cut, drafts);
        cut.cutBack(before.length);
        assert.deepEqual(run(cut, after), expected);
        assert.deepEqual(cut.cache.contents, plain.cache.contents);
        assert.deepEqual(cut.report, plain.report);
        assert.deepEqual(run(fork, after), expected);
        cut.cutBack(before.length);
        assert.deepEqual(run(cut, after), expected);
      }),
    );
  });

  it('cannot be cut back to a step that it forgot', () => {
    const sequence = prefilled({
      rules: {
        cache: shapeOf(20, LAYERS, EXPERTS),
        expertsPerToken: 2,
        routing: { kind: 'top-k' },
        lowerFetch: 'wait',
        theta: 0.5,
        missTarget: null,
        start: 'empty',
        seed: 1,
      },
      prompt: [],
      steps: [],
    });
    for (let step = 0; step < 4; step += 1) sequence.beginStep();
    sequence.forgetBefore(2);
    assert.throws(() => sequence.cutBack(1), { code: 'INTERNAL' });
    sequence.cutBack(2);
    assert.equal(sequence.beginStep(), 2);
  });

  it('exceeds its budget by optional fetches for at most the bytes of one lower slice', () => {
    fc.assert(
      fc.property(cases, (given) => {
        const { missTarget, cache } = given.rules;
        fc.pre(missTarget !== null);
        const [lowerBytes, wholeBytes] = [cache.lowerBytes, cache.lowerBytes + cache.upperBytes];
        const executions = run(prefilled(given), given.steps);
        let [asked, fetched] = [0, 0];
        for (const { fetchedBytes } of executions.slice(FREE_STEPS * LAYERS * 2)) {
          asked += wholeBytes;
          fetched += fetchedBytes;
          const fetchedLower = fetchedBytes % cache.upperBytes === lowerBytes;
          if (fetchedLower) assert.ok(fetched <= missTarget * asked + lowerBytes + 1e-9);
        }
      }),
    );
  });

  it('waits for lower slices, gets them later or never, as its rule says', () => {
    // Expert 0 has a weight of 0.9 and is critical; both experts are there from the prompt, with upper slices alone.
    const logits = [Math.log(9), 0, -50, -50, -50, -50];
    const outcome = (lowerFetch: LowerFetch): [string, number, number][] => {
      const sequence = LogicalSequence.begin({
        cache: shapeOf(11),
        expertsPerToken: 2,
        routing: { kind: 'top-k' },
        lowerFetch,
        theta: 0.5,
        missTarget: null,
        start: 'random',
        seed: 1,
      });
      const router = { logits, scores: logits.map(Math.exp) };
      sequence.takePrompt(0, router);
      sequence.endPrompt();
      return [1, 2].map(() => {
        sequence.beginStep();
        const [first] = sequence.runLayer(0, router);
        sequence.endStep();
        assert.ok(first);
        return [first.precision, first.waitedBytes, first.fetchedBytes];
      });
    };
    assert.deepEqual(outcome('wait'), [
      ['high', 3, 3],
      ['high', 0, 0],
    ]);
    assert.deepEqual(outcome('background'), [
      ['low', 0, 3],
      ['high', 0, 0],
    ]);
    assert.deepEqual(outcome('never'), [
      ['low', 0, 0],
      ['low', 0, 0],
    ]);
  });
});
