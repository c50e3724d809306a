import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  REMEMBERED_PEERS_LIMIT,
  SILENCE_CEILING_MS,
  SilenceBound,
  SilenceBounds,
} from '../../shared/transport/silence-bound.js';

const FLOOR_MS = 700;
/** Answers of a link in a minute or so. */
const MANY = 150;

const bound = (): SilenceBound => new SilenceBound(FLOOR_MS);
function answers(of: SilenceBound, roundTripsMs: readonly number[], latenessMs = 0): void {
  for (const roundTripMs of roundTripsMs) of.answered(roundTripMs, latenessMs);
}
const times = (roundTripMs: number, count = MANY): number[] => Array.from({ length: count }, () => roundTripMs);

describe('how long a peer may be silent', () => {
  it('is what the settings say on a quiet link, whatever came before the first answer or comes after many', () => {
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

  it('is more than twice what the peer has just taken, up to the ceiling, and never less than the settings say', () => {
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

  it('rises where answers come unevenly, above the longest that is likely', () => {
    const link = bound();
    answers(
      link,
      Array.from({ length: MANY }, (_, index) => (index % 5 === 0 ? 650 : 20)),
    );
    assert.ok(link.limitMs > 1000, `${link.limitMs} ms`);
  });

  it('rises where this process itself is woken late, though the peer answers at once', () => {
    const link = bound();
    answers(link, times(1), 600);
    assert.ok(link.limitMs > 1200, `${link.limitMs} ms`);
  });

  it('is what the settings say again after a minute of quiet', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 0, max: 10_000 }), { maxLength: 30 }), (roundTripsMs) => {
        const link = bound();
        answers(link, roundTripsMs);
        answers(link, times(1));
        assert.equal(link.limitMs, FLOOR_MS);
      }),
    );
  });

  it('is longer for a peer that was there after all, up to the ceiling, and as before once it has been quiet', () => {
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

  it('stays what the settings say where they ask for more than the ceiling', () => {
    const patient = new SilenceBound(4 * SILENCE_CEILING_MS);
    answers(patient, times(3 * SILENCE_CEILING_MS));
    patient.silent();
    assert.equal(patient.limitMs, 4 * SILENCE_CEILING_MS);
  });

  it('is remembered of a peer between its connections, and of so many peers as may be', () => {
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
