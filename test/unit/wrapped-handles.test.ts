import assert from 'node:assert/strict';
import { innerHandle, wrapHandle, wrapperOf } from '../../native/index.js';

interface Lamp {
  readonly brightness: number;
  /** A own property of some lamps. */
  readonly colour?: string;
  brighten(by: number): number;
  flash?: (() => string) | undefined;
  nameOf(what: string): string;
  dispose(): void;
}

/** Its private field shows whether a method is called on the lamp itself. */
class RealLamp implements Lamp {
  #brightness = 1;
  disposed = false;

  get brightness(): number {
    return this.#brightness;
  }

  brighten(by: number): number {
    this.#brightness += by;
    return this.#brightness;
  }

  flash(): string {
    return `flash ${this.#brightness}`;
  }

  nameOf(what: string): string {
    return `${what} of a lamp of ${this.#brightness}`;
  }

  dispose(): void {
    this.disposed = true;
  }
}

/** Counts the calls of brighten. */
class CountingLamp extends wrapperOf<Lamp>() {
  calls = 0;
  override readonly flash = undefined;

  constructor(private readonly lamp: Lamp) {
    super(lamp);
  }

  override brighten(by: number): number {
    this.calls += 1;
    return this.lamp.brighten(2 * by);
  }
}

describe('a wrapper of a handle', () => {
  it('forwards each method that it does not override, and getters as they are now', () => {
    const lamp = new RealLamp();
    const wrapped = wrapHandle<Lamp>(lamp, {});
    assert.equal(wrapped.brighten(2), 3);
    assert.equal(wrapped.brightness, 3);
    lamp.brighten(1);
    assert.equal(wrapped.brightness, 4);
    assert.equal(wrapped.nameOf('light'), 'light of a lamp of 4');
    wrapped.dispose();
    assert.equal(lamp.disposed, true);
  });

  it('uses its overrides, which may be getters or hide an optional method', () => {
    const lamp = new RealLamp();
    let shown = 5;
    const wrapped = wrapHandle<Lamp>(lamp, {
      get brightness() {
        return shown;
      },
      brighten: (by) => lamp.brighten(10 * by),
      flash: undefined,
    });
    assert.equal(wrapped.brighten(1), 11);
    shown = 6;
    assert.equal(wrapped.brightness, 6);
    assert.equal(wrapped.flash, undefined);
    assert.equal(lamp.flash(), 'flash 11');
  });

  it('can be a class with state, whose instances stay apart', () => {
    const [first, second] = [new CountingLamp(new RealLamp()), new CountingLamp(new RealLamp())];
    assert.equal(first.brighten(1), 3);
    assert.equal(first.brightness, 3);
    assert.equal(second.brightness, 1);
    assert.deepEqual([first.calls, second.calls], [1, 0]);
    assert.equal(first.flash, undefined);
    assert.equal(first.nameOf('light'), 'light of a lamp of 3');
    assert.ok(first instanceof CountingLamp);
  });

  it('wraps wrappers, plain objects and own properties of a handle', () => {
    const twice = wrapHandle<Lamp>(new CountingLamp(new RealLamp()), { nameOf: () => 'nothing' });
    assert.equal(twice.brighten(1), 3);
    assert.equal(twice.brightness, 3);
    assert.equal(twice.nameOf('light'), 'nothing');
    const plain = { brightness: 2, brighten: (by: number) => by, nameOf: String, dispose: () => undefined };
    assert.equal(wrapHandle<Lamp>(plain, {}).brightness, 2);
    assert.equal(wrapHandle<Lamp>(plain, {}).nameOf('x'), 'x');
    assert.equal(wrapHandle<Lamp>(plain, {}).flash, undefined, 'an optional method that the handle lacks is absent');
    const coloured = Object.assign(new RealLamp(), { colour: 'red' });
    assert.equal(wrapHandle<Lamp>(coloured, {}).colour, 'red');
  });

  it('gives back the handle that it wraps', () => {
    const lamp: Lamp = new RealLamp();
    assert.equal(innerHandle(wrapHandle(lamp, {})), lamp);
    assert.equal(innerHandle(lamp), lamp);
  });
});
