import assert from 'node:assert/strict';
import { collectionSizes } from '../../shared/base/runtime/collection-sizes.js';

class Inner {
  readonly entries = new Map([['a', new Set([1, 2])]]);
}

class Outer {
  readonly list = [new Inner(), new Inner()];
  readonly plain = { deep: new Set(['x']) };
  readonly bytes = new Uint8Array(1000);
  private readonly self = this;

  get computed(): Set<number> {
    return new Set(this.self.list.map(() => assert.fail('asked')));
  }
}

describe('the sizes of all collections that are reachable from an object', () => {
  it('are summed by class and field, through lists, maps and plain objects, once for each object', () => {
    assert.deepEqual(Object.fromEntries(collectionSizes([new Outer()])), {
      'Outer.list': 2,
      'Inner.entries': 2,
      'Inner.entries[]': 4,
      'Outer.plain.deep': 1,
    });
  });

  it('count the keys of maps as well as their values', () => {
    const keyed = { held: new Map([[{ list: [1, 2, 3] }, 'value']]) };
    assert.equal(collectionSizes([keyed]).get('.held[].list'), 3);
  });

  it('are complete, or an error: too many objects make it fail', () => {
    const lists = { held: [[], []] };
    assert.equal(collectionSizes([lists], () => false, 4).get('.held[]'), 0);
    assert.throws(() => collectionSizes([lists], () => false, 3), { code: 'INTERNAL' });
  });

  it('leave out objects that the caller marks as outside', () => {
    const sizes = collectionSizes([new Outer()], (value) => value instanceof Inner);
    assert.deepEqual([...sizes.keys()].sort(), ['Outer.list', 'Outer.plain.deep']);
  });
});
