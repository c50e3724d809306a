import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  type LayerResidency,
  LEAST_RATIO,
  lowerLayer,
  planResidency,
  type ResidencyRequest,
  residencyLevel,
  residencyLoadMs,
  residentBytes,
  windowPassMs,
} from '../../shared/decisions/residency/residency-planner.js';

const COSTS = { bytes: { plain: 100, compressed: 80 }, loadMs: { compressed: 1, offloaded: 10 } };
const PLENTY = { deviceBytes: 1e9, cacheBytes: 0, expertsPerLayer: 1, keepsPlain: true, keepsCompressed: true };

const layersOf = (count: number, layer: LayerResidency): LayerResidency[] => Array.from({ length: count }, () => layer);
const evenly = (totalMs: number, layers: number): number[] => Array.from({ length: layers }, () => totalMs / layers);
const all = (layers: readonly LayerResidency[]): number[] =>
  layers.map(({ plain, compressed, offloaded }) => plain + compressed + offloaded);

const drawnLayer = fc.record({ plain: fc.nat(8), compressed: fc.nat(8), offloaded: fc.nat(8) });
const drawnRequest: fc.Arbitrary<ResidencyRequest> = fc
  .record({
    layers: fc.array(drawnLayer, { minLength: 1, maxLength: 12 }),
    costs: fc.record({
      bytes: fc
        .record({ compressed: fc.integer({ min: 1, max: 100 }), more: fc.integer({ min: 1, max: 100 }) })
        .map(({ compressed, more }) => ({ compressed, plain: compressed + more })),
      loadMs: fc.record({
        compressed: fc.double({ min: 0.01, max: 10, noNaN: true }),
        offloaded: fc.double({ min: 0.01, max: 100, noNaN: true }),
      }),
    }),
    computeMs: fc.array(fc.double({ min: 0, max: 100, noNaN: true }), { minLength: 12, maxLength: 12 }),
    deviceBytes: fc.integer({ min: 0, max: 40_000 }),
    cacheBytes: fc.integer({ min: 0, max: 20_000 }),
    expertsPerLayer: fc.integer({ min: 1, max: 4 }),
    keepsPlain: fc.boolean(),
    keepsCompressed: fc.boolean(),
  })
  .map(({ computeMs, ...request }) => ({ ...request, layerComputeMs: computeMs.slice(0, request.layers.length) }));

describe('planResidency (FluxMoE Algorithm 2)', () => {
  it('gives back one expert of each layer where computing hides the loads, and takes none in the dead zone', () => {
    const layers = layersOf(3, { plain: 0, compressed: 20, offloaded: 0 });
    const at = (computeMs: number) =>
      planResidency({ layers, costs: COSTS, layerComputeMs: evenly(computeMs, 3), ...PLENTY, keepsPlain: false });
    assert.deepEqual(at(61).layers, layersOf(3, { plain: 0, compressed: 19, offloaded: 1 }));
    assert.equal(at(61).change, 'lowered');
    assert.equal(at(60).change, 'none');
    assert.equal(at(54).change, 'none');
    assert.equal(at(53).change, 'none', 'nothing is left to raise, as plain experts are not kept');
  });

  it('takes memory where computing takes less than nine tenths of the loads, and not before', () => {
    const layers = layersOf(2, { plain: 0, compressed: 0, offloaded: 3 });
    const changeAt = (computeMs: number): string =>
      planResidency({ layers, costs: COSTS, layerComputeMs: evenly(computeMs, 2), ...PLENTY }).change;
    assert.deepEqual([60, 55, 53].map(changeAt), ['none', 'none', 'raised']);
  });

  it('takes memory where loads delay computing', () => {
    const layers = layersOf(2, { plain: 0, compressed: 4, offloaded: 3 });
    const plan = planResidency({ layers, costs: COSTS, layerComputeMs: evenly(40, 2), ...PLENTY });
    assert.equal(plan.change, 'raised');
    assert.deepEqual(plan.layers[0], { plain: 0, compressed: 5, offloaded: 2 });
    assert.ok(residencyLevel(plan.layers) > residencyLevel(layers));
  });

  it('puts keys and values first, whatever rho is (equation 12)', () => {
    const layers = layersOf(4, { plain: 0, compressed: 5, offloaded: 0 });
    const request = { layers, costs: COSTS, layerComputeMs: evenly(0, 4), ...PLENTY, keepsPlain: false };
    const plan = planResidency({ ...request, deviceBytes: 1600, cacheBytes: 500 });
    assert.equal(plan.change, 'forced');
    assert.ok(plan.expertBytes <= 1100);
    // No layer gives much more than another.
    const offloaded = plan.layers.map((layer) => layer.offloaded);
    assert.ok(Math.max(...offloaded) - Math.min(...offloaded) <= 1);
  });

  it('includes every expert of every layer, and always keeps the bound', () => {
    fc.assert(
      fc.property(drawnRequest, (request) => {
        const { layers, expertBytes } = planResidency(request);
        assert.deepEqual(all(layers), all(request.layers));
        for (const layer of layers) assert.ok(Math.min(layer.plain, layer.compressed, layer.offloaded) >= 0);
        assert.equal(expertBytes, residentBytes(layers, request.costs));
        assert.ok(expertBytes <= Math.max(0, request.deviceBytes - request.cacheBytes));
      }),
    );
  });

  it('lowers and raises as rho requires, by at most one step of each layer', () => {
    fc.assert(
      fc.property(drawnRequest, (drawn) => {
        const request = { ...drawn, deviceBytes: 1e9, cacheBytes: 0 };
        const { layers, rho, change } = planResidency(request);
        const before = residentBytes(request.layers, request.costs);
        const after = residentBytes(layers, request.costs);
        if (change === 'lowered') assert.ok(rho > 1 && after < before);
        else if (change === 'raised') assert.ok(rho < LEAST_RATIO && after > before);
        else assert.deepEqual(layers, request.layers);
        assert.notEqual(change, 'forced');
        for (const [index, layer] of layers.entries()) {
          const changed = Math.abs(layer.offloaded - (request.layers[index]?.offloaded ?? 0));
          assert.ok(changed <= request.expertsPerLayer);
        }
        if (change === 'raised')
          assert.ok(residencyLoadMs(layers, request.costs) <= residencyLoadMs(request.layers, request.costs));
      }),
    );
  });

  it('settles under constant measurements (negative feedback, equation 13)', () => {
    fc.assert(
      fc.property(drawnRequest, (request) => {
        let { layers } = request;
        const mostSteps = 3 * all(layers).reduce((sum, experts) => sum + experts, 0) + 3;
        for (let step = 0; ; step += 1) {
          const plan = planResidency({ ...request, layers });
          if (plan.change === 'none') return;
          assert.ok(step <= mostSteps, 'the planner swings');
          layers = plan.layers;
        }
      }),
    );
  });

  it('gives up nothing that would delay computing, however uneven the layers are', () => {
    fc.assert(
      fc.property(drawnRequest, (drawn) => {
        const request = { ...drawn, deviceBytes: 1e9, cacheBytes: 0 };
        const { layers, change } = planResidency(request);
        if (change !== 'lowered') return;
        const loadMs = layers.map((layer) => residencyLoadMs([layer], request.costs));
        const computeMs = request.layerComputeMs.reduce((sum, ms) => sum + ms, 0);
        assert.ok(windowPassMs(request.layerComputeMs, loadMs) <= computeMs * (1 + 1e-6));
      }),
    );
  });

  it('lets a pass through the window take the longer of computing and loading, for even layers', () => {
    assert.equal(windowPassMs([2, 2, 2, 2], [1, 1, 1, 1]), 8);
    assert.equal(windowPassMs([2, 2, 2, 2], [3, 3, 3, 3]), 12);
    // A long load begins when the layer two before it has ended, and hides behind the one between.
    assert.equal(windowPassMs([2, 2, 2, 2], [0, 0, 0, 8]), 14);
  });

  it('lowers plain experts where that costs less, and offloads elsewhere', () => {
    const hidden = lowerLayer(
      { plain: 1, compressed: 5, offloaded: 0 },
      { ...COSTS, loadMs: { compressed: 1, offloaded: 2 } },
      1,
    );
    assert.deepEqual(hidden, { plain: 1, compressed: 4, offloaded: 1 });
    const dear = lowerLayer({ plain: 1, compressed: 0, offloaded: 3 }, COSTS, 1);
    assert.deepEqual(dear, { plain: 0, compressed: 1, offloaded: 3 });
  });
});
