import type { WeightDtype } from '../../shared/model/weight-dtype.js';
import { noise, TINY_CONFIG, tinyTensors, type TinyTensor } from './tiny-checkpoint.js';

/** A checkpoint with expert matrices so large that codecs make them smaller. */
export const MEDIUM_CONFIG = { ...TINY_CONFIG, hidden_size: 64, intermediate_size: 80, num_local_experts: 2 };

/** Every tensor filled with values spread like trained weights: a normal distribution, rounded toward zero to the type. */
export function weightTensors(
  dtype: WeightDtype,
  config: Readonly<Record<string, unknown>> = MEDIUM_CONFIG,
): TinyTensor[] {
  return tinyTensors(
    config,
    () => dtype,
    (sizeBytes, seed) => normalValues(dtype, sizeBytes, seed),
  );
}

function normalValues(dtype: WeightDtype, sizeBytes: number, seed: number): Uint8Array {
  const random = new DataView(noise(sizeBytes * 8 + 64, seed).buffer);
  const bytes = new Uint8Array(sizeBytes);
  const view = new DataView(bytes.buffer);
  const width = dtype === 'F32' ? 4 : 2;
  for (let at = 0; at < sizeBytes; at += width) {
    const uniform = (offset: number): number => (random.getUint32(at * 8 + offset) + 0.5) / 2 ** 32;
    const value = 0.02 * Math.sqrt(-2 * Math.log(uniform(0))) * Math.cos(2 * Math.PI * uniform(4));
    const bits = new Uint32Array(Float32Array.of(value).buffer)[0] ?? 0;
    if (dtype === 'F32') view.setUint32(at, bits, true);
    else view.setUint16(at, dtype === 'BF16' ? bits >>> 16 : halfOf(bits), true);
  }
  return bytes;
}

/** FP16 bits of an FP32 below 65,520, rounded toward zero. Values below FP16's normal numbers become zero. */
function halfOf(bits: number): number {
  const exponent = ((bits >>> 23) & 0xff) - 112;
  const sign = (bits >>> 16) & 0x8000;
  return exponent < 1 ? sign : sign | (exponent << 10) | ((bits >>> 13) & 0x3ff);
}
