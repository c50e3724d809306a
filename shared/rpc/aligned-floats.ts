/**
 * The FP32 values of a received tensor. A received `bytes` field may start at any offset of its buffer, where a
 * Float32Array view would throw; it is then copied, else viewed in place. Little-endian hosts only, as all that odmoe runs on are.
 */
export function alignedFloats(bytes: Uint8Array): Float32Array {
  const count = Math.floor(bytes.byteLength / Float32Array.BYTES_PER_ELEMENT);
  if (bytes.byteOffset % Float32Array.BYTES_PER_ELEMENT === 0) {
    return new Float32Array(bytes.buffer, bytes.byteOffset, count);
  }
  const copy = new Float32Array(count);
  new Uint8Array(copy.buffer).set(bytes.subarray(0, copy.byteLength));
  return copy;
}
