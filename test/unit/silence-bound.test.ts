import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  REMEMBERED_PEERS_LIMIT,
  SILENCE_CEILING_MS,
  SilenceBound,
  SilenceBounds,
} from '../../shared/transport/silence-bound.js';

const FLOOR_MS = 700;
/** Number of answers of a link in about a minute. */
const MANY = 150;

const bound = (): SilenceBound => new SilenceBound(FLOOR_MS);
function answers(of: SilenceBound, roundTripsMs: readonly number[], latenessMs = 0): void {
  for (const roundTripMs of roundTripsMs) of.answered(roundTripMs, latenessMs);
}
const times = (roundTripMs: number, count = MANY): number[] => Array.from({ length: count }, () => roundTripMs);

describe('the silence limit of a peer', () => {
  it('equals the setting on a quiet link, before the first answer and after many', () => {
    const quiet = bound();
    assert.equal(quiet.limitMs, FLOOR_MS);
    fc.assert(
      fc.property(fc.array(fc.double({ min: 0, max: 100, noNaN: true }), { maxLength: MANY }), (roundTripsMs) => {
        const link = bound();
        answers(link, roundTripsMs);
        assert.equal(link.limitMs, FLOOR_MS);
      }),
    );
  });

  it("is more than twice the peer's latest time, up to the ceiling, and never below the setting", () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 0, max: 20_000 }), { minLength: 1, maxLength: MANY }), (roundTripsMs) => {
        const link = bound();
        answers(link, roundTripsMs);
        const latestMs = roundTripsMs.at(-1) ?? 0;
        assert.ok(link.limitMs >= Math.min(SILENCE_CEILING_MS, 2 * latestMs));
        assert.ok(link.limitMs >= FLOOR_MS && link.limitMs <= SILENCE_CEILING_MS, `${link.limitMs} ms`);
      }),
    );
  });

  it('rises where answer times vary, above the longest likely one', () => {
    const link = bound();
    answers(
      link,
      Array.from({ length: MANY }, (_, index) => (index % 5 === 0 ? 650 : 20)),
    );
    assert.ok(link.limitMs > 1000, `${link.limitMs} ms`);
  });

  it('rises where this process itself wakes late, though the peer answers at once', () => {
    const link = bound();
    answers(link, times(1), 600);
    assert.ok(link.limitMs > 1200, `${link.limitMs} ms`);
  });

  it('equals the setting again after a quiet minute', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 0, max: 10_000 }), { maxLength: 30 }), (roundTripsMs) => {
        const link = bound();
        answers(link, roundTripsMs);
        answers(link, times(1));
        assert.equal(link.limitMs, FLOOR_MS);
      }),
    );
  });

  it('is longer after a false alarm, up to the ceiling, and normal again after quiet', () => {
    const link = bound();
    const limitsMs = Array.from({ length: 6 }, () => {
      link.silent();
      return link.limitMs;
    });
    assert.deepEqual(limitsMs, [
      1400,
      2800,
      SILENCE_CEILING_MS,
      SILENCE_CEILING_MS,
      SILENCE_CEILING_MS,
      SILENCE_CEILING_MS,
    ]);
    answers(link, times(1));
    assert.equal(link.limitMs, FLOOR_MS);
  });

  it('equals the setting where that is above the ceiling', () => {
    const patient = new SilenceBound(4 * SILENCE_CEILING_MS);
    answers(patient, times(3 * SILENCE_CEILING_MS));
    patient.silent();
    assert.equal(patient.limitMs, 4 * SILENCE_CEILING_MS);
  });

  it('is remembered between connections of a peer, for a bounded number of peers', () => {
    const peers = new SilenceBounds();
    peers.of('w1:1', FLOOR_MS).silent();
    assert.equal(peers.of('w1:1', FLOOR_MS).limitMs, 2 * FLOOR_MS);
    assert.equal(peers.of('w2:1', FLOOR_MS).limitMs, FLOOR_MS);
    assert.equal(peers.of('w1:1', 300).limitMs, 300, 'other settings begin anew');
    peers.of('w1:1', FLOOR_MS).silent();
    for (let peer = 0; peer < REMEMBERED_PEERS_LIMIT; peer++) peers.of(`other:${peer}`, FLOOR_MS);
    assert.equal(peers.of('w1:1', FLOOR_MS).limitMs, FLOOR_MS, 'the first one has been forgotten');
  });
});
