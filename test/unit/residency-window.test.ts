import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  StreamingWindow,
  WINDOW_TENSORS,
  warTarget,
  windowExperts,
  type WindowLoad,
} from '../../bench/fluxmoe/streaming-window.js';

const EXPERTS = 6;

/** Runs a window in a drawn order of events, and checks what a device would see of it. */
class WindowUnderTest {
  readonly window: StreamingWindow;
  private readonly waiting: { load: WindowLoad; type: (typeof WINDOW_TENSORS)[number] }[] = [];
  /** Step that reads each block. */
  private readonly blocks = new Map<number, number>();
  private readonly taken = new Map<number, number[]>();
  computedSteps = 0;
  private loadedSteps = 0;

  constructor(private readonly layers: number) {
    this.window = new StreamingWindow(layers, EXPERTS);
  }

  act(draw: number): void {
    if (draw % 3 === 0 && this.window.mayLoad) this.begin(draw);
    else if (draw % 3 === 1) this.endLoad(draw);
    else if (this.window.isLoaded(this.computedSteps)) this.compute();
  }

  /** Runs the window to its end. At every step there must be something that can be done. */
  finish(): void {
    const goal = this.computedSteps + 2 * this.layers;
    for (let turn = 0; this.computedSteps < goal; turn += 1) {
      assert.ok(turn < 100 * goal, 'the window stands still');
      this.act(turn);
    }
  }

  private begin(draw: number): void {
    const expected = this.loadedSteps % this.layers;
    assert.equal(this.window.nextLayer, expected);
    const predicted = [[draw % EXPERTS, (draw + 1) % EXPERTS], [(draw * 7) % EXPERTS]];
    this.note(this.window.load(windowExperts(EXPERTS, draw % 2 === 0 ? null : predicted)));
    this.loadedSteps += 1;
  }

  private note(load: WindowLoad): void {
    for (const block of load.blocks) {
      assert.ok(block >= 0 && block < 2 * EXPERTS);
      assert.ok(!this.blocks.has(block), 'a block that is still read is not written');
      this.blocks.set(block, load.step);
    }
    this.taken.set(load.step, [...(this.taken.get(load.step) ?? []), ...load.blocks]);
    this.waiting.push(...WINDOW_TENSORS.map((type) => ({ load, type })));
  }

  private endLoad(draw: number): void {
    const [ended] = this.waiting.splice(draw % Math.max(1, this.waiting.length), 1);
    if (ended === undefined) return;
    this.window.loaded(ended.load.step, ended.type);
    const missing = this.window.complete(ended.load.step, [draw % EXPERTS, (draw * 5) % EXPERTS]);
    if (missing !== null) this.note(missing);
  }

  private compute(): void {
    const step = this.computedSteps;
    assert.ok(
      !this.waiting.some(({ load }) => load.step === step),
      'no layer is computed before its tensors have come',
    );
    this.window.computed(step);
    for (const block of this.taken.get(step) ?? []) this.blocks.delete(block);
    this.computedSteps += 1;
    assert.equal(this.window.freeBlocks, 2 * EXPERTS - this.blocks.size);
  }
}

describe('StreamingWindow (FluxMoE Algorithm 1)', () => {
  it('waits for the layer whose blocks are taken, over the end of a pass', () => {
    assert.deepEqual(
      [1, 2, 3, 4, 5].map((layer) => warTarget(layer, 5)),
      [4, 5, 1, 2, 3],
    );
  });

  it('has the layer two steps before as its WAR target', () => {
    const window = new StreamingWindow(5, EXPERTS);
    const everything = windowExperts(EXPERTS, null);
    for (let step = 0; step < 20; step += 1) {
      assert.equal(window.mayLoad, true);
      const { layer } = window.load(everything);
      for (const type of WINDOW_TENSORS) window.loaded(step, type);
      if (step === 0) continue;
      assert.equal(window.mayLoad, false, 'both layers of the window are taken');
      assert.equal(warTarget(((step + 1) % 5) + 1, 5) - 1, (step - 1) % 5, `after layer ${layer}`);
      window.computed(step - 1);
    }
  });

  it('writes no block that is read, computes nothing that is not loaded, and never stands still', () => {
    fc.assert(
      fc.property(fc.integer({ min: 2, max: 7 }), fc.array(fc.nat(1000), { maxLength: 200 }), (layers, draws) => {
        const tested = new WindowUnderTest(layers);
        for (const draw of draws) tested.act(draw);
        tested.finish();
      }),
    );
  });

  it('loads the union of the predicted experts, while that is smaller than the layer', () => {
    assert.deepEqual(windowExperts(4, [[2], [0, 2]]), [0, 2]);
    assert.deepEqual(windowExperts(3, [[2], [0, 1]]), [0, 1, 2]);
    assert.deepEqual(windowExperts(3, null), [0, 1, 2]);
  });

  it('the streaming window refuses misuse', () => {
    const window = new StreamingWindow(2, EXPERTS);
    window.load([0]);
    assert.throws(() => {
      window.computed(0);
    });
    window.load([0]);
    assert.throws(() => window.load([1]));
  });
});
