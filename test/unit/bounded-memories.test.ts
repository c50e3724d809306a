import assert from 'node:assert/strict';
import fc from 'fast-check';
import { DistrustedWorkers, MAX_DISTRUSTED } from '../../main-node/cluster/distrusted-workers.js';
import { LatestHops, MAX_HOP_WORKERS } from '../../main-node/cluster/hop-stages.js';
import { PeerTotals } from '../../main-node/cluster/peer-totals.js';
import type { WorkerLink } from '../../main-node/cluster/worker-link.js';
import { LayerWaits } from '../../main-node/pass/layer-waits.js';
import { FairAddresses } from '../../shared/transport/discovery/fair-addresses.js';
import {
  COMPILED_FORMATS_LIMIT,
  REMEMBERED_GRAMMARS_LIMIT,
  MASKS_LIMIT_BYTES,
} from '../../engine/output-format/format-limits.js';
import { compileFormat } from '../../engine/output-format/format-grammar.js';
import { formatVocabulary, type CompiledFormat, type TokenMask } from '../../engine/output-format/format-vocabulary.js';
import type { AutomatonState } from '../../engine/output-format/text-automaton.js';
import { NO_TIMES } from '../../shared/wire/messages.js';
import { emptyNodeStatus } from '../../shared/wire/node-status.js';
import { MAX_REMEMBERED_REFUSALS, RefusalLog } from '../../shared/transport/peer-greeting.js';
import { REMEMBERED_PEERS_LIMIT, SilenceBounds } from '../../shared/transport/silence-bound.js';
import { RecentMap } from '../../shared/base/runtime/recent-map.js';
import { TokenBuckets } from '../../shared/base/runtime/token-buckets.js';
import { ConversationShaper } from '../../shared/language/tokenizer/conversation-shape.js';
import { MAX_FOLLOWED_SEQUENCES, MainProgress } from '../../worker-node/loader/main-progress.js';
import { identity, SILENT } from './membership-setting.js';

describe('a map of the most recently used entries', () => {
  interface Step {
    kind: 'get' | 'set' | 'of' | 'has' | 'delete';
    key: number;
    value: number;
  }
  const steps: fc.Arbitrary<Step[]> = fc.array(
    fc.record({
      kind: fc.constantFrom('get', 'set', 'of', 'has', 'delete'),
      key: fc.nat(6),
      value: fc.nat(99),
    }),
    { maxLength: 40 },
  );

  it('holds the same entries as a plain list of the most recent ones', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 5 }), steps, (limit, all) => {
        const map = new RecentMap<number, number>(limit);
        let list: [number, number][] = [];
        const use = (key: number, value: number): void => {
          list = [...list.filter(([other]) => other !== key), [key, value] as [number, number]].slice(-limit);
        };
        for (const { kind, key, value } of all) {
          const known = list.find(([other]) => other === key)?.[1];
          if (kind === 'has') assert.equal(map.has(key), known !== undefined);
          else if (kind === 'get') {
            assert.equal(map.get(key), known);
            if (known !== undefined) use(key, known);
          } else if (kind === 'set') {
            map.set(key, value);
            use(key, value);
          } else if (kind === 'of') {
            assert.equal(
              map.of(key, () => value),
              known ?? value,
            );
            use(key, known ?? value);
          } else {
            assert.equal(map.delete(key), known !== undefined);
            list = list.filter(([other]) => other !== key);
          }
          assert.deepEqual([...map], list);
        }
      }),
      { numRuns: 300 },
    );
  });
});

/** A memory of values that are asked for by numbers. */
interface Memory {
  use(key: number): void;
  /** The call may count as a use of the value. */
  remembers(key: number): boolean;
}

/** True if `make` was called to make the value. */
function isMade(ask: (make: () => never) => unknown): boolean {
  try {
    ask(() => {
      throw new Error('it is to be made');
    });
    return false;
  } catch {
    return true;
  }
}

function bucketsMemory(): Memory {
  const buckets = new TokenBuckets({ burst: 1, perSecond: 0 }, 3, () => 0);
  return {
    use: (key) => void buckets.take(`${key}`),
    remembers: (key) => !buckets.take(`${key}`),
  };
}

function silenceMemory(): Memory {
  const bounds = new SilenceBounds();
  const known = new Map<number, unknown>();
  return {
    use: (key) => void known.set(key, bounds.of(`${key}:1`, 700)),
    remembers: (key) => bounds.of(`${key}:1`, 700) === known.get(key),
  };
}

function refusalMemory(): Memory {
  let lines = 0;
  const log = new RefusalLog({ ...SILENT, warn: () => (lines += 1) });
  const refuse = (key: number): number => {
    const before = lines;
    log.refused(identity(`w${key}`), { code: 'NODE_REFUSED', message: 'no' });
    return lines - before;
  };
  return { use: (key) => void refuse(key), remembers: (key) => refuse(key) === 0 };
}

function shapesMemory(): Memory {
  const shaper = new ConversationShaper();
  const rendersOf = (key: number): number => {
    let renders = 0;
    shaper.shaped([{ role: 'user', content: 'a' }], `setting ${key}`, () => {
      renders += 1;
      return 'odmoeword0x';
    });
    return renders;
  };
  return { use: (key) => void rendersOf(key), remembers: (key) => rendersOf(key) === 0 };
}

const MASKS = 64;
/** Number of tokens for which the memory has room for MASKS masks. */
const VOCABULARY_SIZE = MASKS_LIMIT_BYTES / MASKS;
const tokens = { tokenBytes: (id: number) => Buffer.from(id === 0 ? 'a' : ''), isSpecial: () => false };

function formatsMemory(): Memory {
  const vocabulary = formatVocabulary(tokens, 2);
  return {
    use: (key) => void vocabulary.compiledFormat(`${key}`, () => ({}) as CompiledFormat),
    remembers: (key) => !isMade((make) => vocabulary.compiledFormat(`${key}`, make)),
  };
}

function masksMemory(): Memory {
  const vocabulary = formatVocabulary(tokens, VOCABULARY_SIZE);
  const states = Array.from({ length: MASKS + 1 }, () => ({}) as AutomatonState);
  const stateOf = (key: number): AutomatonState => states[key] ?? assert.fail('more states than that');
  return {
    use: (key) => {
      const state = stateOf(key);
      if (vocabulary.rememberedMask(state) === null) vocabulary.keepMask(state, {} as TokenMask);
    },
    remembers: (key) => vocabulary.rememberedMask(stateOf(key)) !== null,
  };
}

let formats = 0;

function grammarsMemory(): Memory {
  formats += 1;
  // The process remembers grammars for all requests together.
  const prefix = `format ${formats} `;
  const known = new Map<number, unknown>();
  const compile = (key: number): unknown =>
    compileFormat({ alternatives: [{ parts: [{ kind: 'literal', literal: `${prefix}${key}` }] }] });
  return {
    use: (key) => void known.set(key, compile(key)),
    remembers: (key) => compile(key) === known.get(key),
  };
}

const STAGES = { roundTripMs: 1, transitMs: 1, callMs: 0, handOffMs: 0, executeMs: 0, replyMs: 0 };
const EVERYBODY = { has: () => true } as unknown as ReadonlySet<string>;

function hopsMemory(): Memory {
  const hops = new LatestHops();
  return {
    use: (key) => hops.add(`w${key}`, STAGES),
    remembers: (key) => hops.report(EVERYBODY).some(({ worker }) => worker === `w${key}`),
  };
}

/** The bound of LayerWaits. */
const MAX_WORKERS = 1024;

function waitsMemory(): Memory {
  const waits = new LayerWaits(1);
  const workers = Array.from({ length: MAX_WORKERS + 2 }, (_, key) => ({ id: `w${key}` }));
  return {
    use: (key) => {
      const race = waits.begin(0, 0);
      race.take(`w${key}`, { wasLoaded: true, stallUs: 0, executeUs: 1, ...NO_TIMES }, 1);
      waits.end(race);
    },
    remembers: (key) => waits.report(workers).workerWaits.some(({ worker }) => worker === `w${key}`),
  };
}

/** The bound of PeerTotals. */
const MAX_PEERS = 1024;

function totalsMemory(): Memory {
  const totals = new PeerTotals();
  const traffic = (sentBytes: number) => ({ sentBytes, receivedBytes: 0, roundTripMs: 0 });
  return {
    use: (key) => {
      const status = emptyNodeStatus(identity(`w${key}`));
      totals.ended({ id: `w${key}`, status, traffic: traffic(5) });
    },
    remembers: (key) => totals.bytes({ id: `w${key}`, status: null, traffic: traffic(0) }).sentBytes > 0,
  };
}

function liesMemory(): Memory {
  const workers = new DistrustedWorkers();
  const linkOf = (key: number): WorkerLink =>
    ({ id: `w${key}`, address: `w${key}:1`, identity: identity(`w${key}`) }) as WorkerLink;
  return {
    use: (key) => workers.setAside(linkOf(key), 'it lies'),
    remembers: (key) => workers.joined(linkOf(key)),
  };
}

function progressMemory(): Memory {
  const progress = new MainProgress();
  return {
    use: (sequence) => {
      const pass = { sequence, position: 1 };
      progress.executed({ pass, rows: [{ ...pass, rows: 1 }], layer: 0 }, false);
      progress.forgetOldest(() => false);
    },
    remembers: (sequence) => progress.lastExecute(sequence) > 0,
  };
}

const MEMORIES: [what: string, limit: number, make: () => Memory][] = [
  ['kinds whose rate is bounded', 3, bucketsMemory],
  ['peers whose silence is bounded', REMEMBERED_PEERS_LIMIT, silenceMemory],
  ['refusals that were logged', MAX_REMEMBERED_REFUSALS, refusalMemory],
  ['shapes of conversations', 256, shapesMemory],
  ['compiled formats', COMPILED_FORMATS_LIMIT, formatsMemory],
  ['masks of formats', MASKS, masksMemory],
  ['grammars of formats', REMEMBERED_GRAMMARS_LIMIT, grammarsMemory],
  ['workers whose hops are measured', MAX_HOP_WORKERS, hopsMemory],
  ['workers that are waited for', MAX_WORKERS, waitsMemory],
  ['peers whose bytes are counted', MAX_PEERS, totalsMemory],
  ['sequences that a worker has run experts for', MAX_FOLLOWED_SEQUENCES, progressMemory],
  ['workers that are not believed', MAX_DISTRUSTED, liesMemory],
];

describe('bounded collections', () => {
  for (const [what, limit, make] of MEMORIES) {
    it(`are ${what}: one that is used is kept, the one that was not used for longest is forgotten`, () => {
      const memory = make();
      for (let key = 0; key < limit; key += 1) memory.use(key);
      memory.use(0);
      memory.use(limit);
      assert.equal(memory.remembers(0), true, 'it was used');
      assert.equal(memory.remembers(limit), true, 'it is the newest');
      assert.equal(memory.remembers(1), false, 'there was no room for it');
    });

    it(`are ${what}: as many as the bound says`, () => {
      const memory = make();
      for (let key = 0; key < limit; key += 1) memory.use(key);
      for (const key of [0, limit - 1]) assert.equal(memory.remembers(key), true);
    });
  }
});

describe('peer addresses with fair shares', () => {
  const LIMITS = { all: 6, ofHost: 4 };
  interface Step {
    kind: 'set' | 'delete' | 'takeOne';
    host: number;
    port: number;
  }
  const steps: fc.Arbitrary<Step[]> = fc.array(
    fc.record({ kind: fc.constantFrom('set', 'set', 'set', 'delete', 'takeOne'), host: fc.nat(2), port: fc.nat(5) }),
    { maxLength: 40 },
  );

  it('stay within both bounds, and the source with the most addresses loses its oldest', () => {
    fc.assert(
      fc.property(steps, (all) => {
        const addresses = new FairAddresses<string>(LIMITS);
        /** The oldest first. */
        let list: string[] = [];
        const ofHost = (host: string): string[] => list.filter((address) => address.startsWith(`${host}:`));
        const drop = (given: readonly string[]): void => {
          list = list.filter((address) => !given.includes(address));
        };
        const fullest = (): number => Math.max(0, ...['h0', 'h1', 'h2'].map((host) => ofHost(host).length));
        const holdsFairly = (given: string, most: number): void => {
          const host = given.slice(0, 2);
          assert.equal(ofHost(host).length, most, 'another host had more');
          assert.equal(ofHost(host)[0], given, 'it had an older one');
        };
        for (const { kind, host, port } of all) {
          const address = `h${host}:${port}`;
          if (kind === 'delete') {
            assert.equal(addresses.delete(address), list.includes(address));
            drop([address]);
          } else if (kind === 'takeOne') {
            const given = addresses.takeOne();
            assert.equal(given.length, Math.min(1, list.length));
            for (const one of given) holdsFairly(one, fullest());
            drop(given);
          } else {
            drop([address]);
            list.push(address);
            const given = addresses.set(address, address);
            const isFull = ofHost(`h${host}`).length > LIMITS.ofHost || list.length > LIMITS.all;
            assert.equal(given.length, isFull ? 1 : 0);
            for (const one of given) {
              if (ofHost(one.slice(0, 2)).length > LIMITS.ofHost) assert.equal(ofHost(one.slice(0, 2))[0], one);
              else holdsFairly(one, fullest());
              drop([one]);
            }
            assert.ok(ofHost(`h${host}`).length <= LIMITS.ofHost && list.length <= LIMITS.all);
          }
          assert.equal(addresses.size, list.length);
          assert.deepEqual(addresses.values().sort(), [...list].sort());
          assert.equal(addresses.get(address), list.includes(address) ? address : undefined);
        }
      }),
      { numRuns: 300 },
    );
  });
});
