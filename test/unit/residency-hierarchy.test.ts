import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  type Backend,
  divideLayer,
  loadMsOf,
  placeTensors,
  placeWholeLayers,
} from '../../shared/decisions/residency/storage-hierarchy.js';

const rate = fc.integer({ min: 1, max: 1000 }).map((gigabytes) => gigabytes * 1e9);
const backends = (capacity: fc.Arbitrary<number>): fc.Arbitrary<Backend[]> =>
  fc.array(fc.record({ kind: fc.constant('host' as const), bytesPerS: rate, capacityBytes: capacity }), {
    minLength: 1,
    maxLength: 4,
  });
const unbounded = backends(fc.constant(Infinity));
const tensors = fc.array(fc.integer({ min: 1, max: 50_000_000 }), { minLength: 1, maxLength: 64 });
const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);

describe('divideLayer (FluxMoE equations 5 to 8)', () => {
  it('divides in proportion to the bandwidths where nothing is full', () => {
    const division = divideLayer(8e9, [
      { kind: 'compressed', bytesPerS: 300e9, capacityBytes: Infinity },
      { kind: 'host', bytesPerS: 100e9, capacityBytes: Infinity },
    ]);
    assert.deepEqual(division, { bytes: [6e9, 2e9], loadMs: 20 });
  });

  it('fills a backend that is too small, and the others share the rest', () => {
    const division = divideLayer(10e9, [
      { kind: 'compressed', bytesPerS: 300e9, capacityBytes: 1e9 },
      { kind: 'host', bytesPerS: 20e9, capacityBytes: Infinity },
      { kind: 'storage', bytesPerS: 10e9, capacityBytes: Infinity },
    ]);
    assert.deepEqual(division, { bytes: [1e9, 6e9, 3e9], loadMs: 300 });
  });

  it('makes all backends end together', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 1e12 }), unbounded, (bytes, places) => {
        const { bytes: parts, loadMs } = divideLayer(bytes, places);
        for (const [index, part] of parts.entries()) {
          assert.ok(Math.abs((part / (places[index]?.bytesPerS ?? 0)) * 1000 - loadMs) <= 1e-9 * loadMs);
        }
      }),
    );
  });

  it('places all bytes within the capacities, and no other division is faster', () => {
    const bounded = backends(fc.integer({ min: 0, max: 1e9 }));
    fc.assert(
      fc.property(
        bounded,
        fc.double({ min: 0, max: 1, noNaN: true }),
        fc.infiniteStream(fc.nat(1000)),
        (places, full, draws) => {
          const capacity = sum(places.map(({ capacityBytes }) => capacityBytes));
          const layerBytes = full * capacity;
          const { bytes, loadMs } = divideLayer(layerBytes, places);
          assert.ok(Math.abs(sum(bytes) - layerBytes) <= 1e-6 * (1 + layerBytes));
          for (const [index, part] of bytes.entries()) assert.ok(part <= (places[index]?.capacityBytes ?? 0));
          // Any other division: bytes moved from one backend to another with room.
          for (let attempt = 0; attempt < 10; attempt += 1) {
            const from = (draws.next().value as number) % places.length;
            const to = (draws.next().value as number) % places.length;
            const room = (places[to]?.capacityBytes ?? 0) - (bytes[to] ?? 0);
            const moved = Math.min(room, ((bytes[from] ?? 0) * (draws.next().value as number)) / 1000);
            const other = [...bytes];
            other[from] = (other[from] ?? 0) - moved;
            other[to] = (other[to] ?? 0) + moved;
            assert.ok(loadMsOf(other, places) >= loadMs * (1 - 1e-9));
          }
        },
      ),
    );
  });

  it('refuses a layer that fits nowhere', () => {
    const places: Backend[] = [{ kind: 'host', bytesPerS: 1e9, capacityBytes: 10 }];
    assert.throws(() => divideLayer(11, places), { code: 'DEVICE_OUT_OF_MEMORY' });
    assert.throws(() => placeTensors([11], places), { code: 'DEVICE_OUT_OF_MEMORY' });
  });
});

describe('placeTensors', () => {
  it('ends at most one tensor of each backend later than the division of bytes', () => {
    fc.assert(
      fc.property(tensors, unbounded, (sizes, places) => {
        const bytes = places.map(() => 0);
        for (const [tensor, place] of placeTensors(sizes, places).entries()) {
          bytes[place] = (bytes[place] ?? 0) + (sizes[tensor] ?? 0);
        }
        const bandwidth = sum(places.map(({ bytesPerS }) => bytesPerS));
        const bound = divideLayer(sum(sizes), places).loadMs + (places.length * Math.max(...sizes) * 1000) / bandwidth;
        assert.ok(loadMsOf(bytes, places) <= bound * (1 + 1e-9));
      }),
    );
  });

  it('puts whole layers, the last ones, on the second backend', () => {
    assert.deepEqual(placeWholeLayers(8, 0.25), [0, 0, 0, 0, 0, 0, 1, 1]);
  });
});
