/** Wrappers of handles: a wrapper has the methods that it changes, and forwards all others of the handle, also those that are added later. */

const INNER = Symbol('inner handle');

class Wrapper {
  readonly [INNER]: object;

  constructor(inner: object) {
    this[INNER] = inner;
    const own: object = new.target.prototype;
    Object.setPrototypeOf(this, forwardingPrototype(own, inner));
    Object.defineProperties(this, forwarders(own, Object.getOwnPropertyDescriptors(inner)));
  }
}

/**
 * The base class of a wrapper with state: `class Paced extends wrapperOf<Pass>()` and `super(inner)`. The compiler checks that an override has
 * the type of the handle's member. A method that the handle lacks, such as an optional one, is absent from the wrapper, too.
 */
export function wrapperOf<Handle extends object>(): new (inner: Handle) => Handle {
  return Wrapper as unknown as new (inner: Handle) => Handle;
}

/** A wrapper without state of its own: `overrides` in place of the handle's members. An override that is undefined hides an optional method. */
export function wrapHandle<Handle extends object>(inner: Handle, overrides: Partial<Handle>): Handle {
  return Object.defineProperties(new (wrapperOf<Handle>())(inner), Object.getOwnPropertyDescriptors(overrides));
}

/** The handle in a wrapper; a handle that is no wrapper is returned as it is. */
export function innerHandle<Handle extends object>(handle: Handle): Handle {
  return handle instanceof Wrapper ? (handle[INNER] as Handle) : handle;
}

/** For each class of wrappers: prototypes with its forwarding methods, by the prototype of the wrapped handle. */
const forwardingPrototypes = new WeakMap<object, WeakMap<object, object>>();

/** It inherits the wrapper's own members from `own`, and is made once for each pair of classes. */
function forwardingPrototype(own: object, inner: object): object {
  const innerPrototype = prototypeOf(inner);
  if (innerPrototype === null) return own;
  const known = forwardingPrototypes.get(own) ?? new WeakMap<object, object>();
  forwardingPrototypes.set(own, known);
  const make = (): object => Object.create(own, forwarders(own, inheritedMembers(inner))) as object;
  const made = known.get(innerPrototype) ?? make();
  known.set(innerPrototype, made);
  return made;
}

/** Null: the handle has no class. */
function prototypeOf(handle: object): object | null {
  const prototype = Object.getPrototypeOf(handle) as object | null;
  return prototype === Object.prototype ? null : prototype;
}

function inheritedMembers(handle: object): PropertyDescriptorMap {
  let members: PropertyDescriptorMap = {};
  for (let level = prototypeOf(handle); level !== null; level = prototypeOf(level))
    members = { ...Object.getOwnPropertyDescriptors(level), ...members };
  return members;
}

/** Forwards the members that the wrapper's class does not have. */
function forwarders(own: object, members: PropertyDescriptorMap): PropertyDescriptorMap {
  const missing = Object.entries(members).filter(([name]) => !(name in own));
  return Object.fromEntries(missing.map(([name, member]) => [name, forwarder(name, member)]));
}

function forwarder(name: string, member: PropertyDescriptor): PropertyDescriptor {
  if (typeof member.value !== 'function') {
    const get = function (this: Wrapper): unknown {
      return Reflect.get(this[INNER], name);
    };
    return { get, configurable: true };
  }
  const value = function (this: Wrapper, ...args: unknown[]): unknown {
    const inner = this[INNER];
    return Reflect.apply(Reflect.get(inner, name) as (...args: unknown[]) => unknown, inner, args);
  };
  return { value, configurable: true, writable: true };
}
