import { InvalidArgumentError } from 'commander';

/** The name of a node's device, as cluster.yaml and --device give it. */
export type DeviceName = 'auto' | 'cpu' | 'cuda' | `cuda:${number}`;

export const DEVICE_NAME_ERROR = 'auto, cpu, cuda or cuda:N (the N-th device, from 0)';

const DEVICE_NAME = /^(?:auto|cpu|cuda|cuda:\d{1,3})$/;

export function isDeviceName(text: string): text is DeviceName {
  return DEVICE_NAME.test(text);
}

/** Parser of --device; throws commander's InvalidArgumentError. */
export function deviceFlag(text: string): DeviceName {
  if (isDeviceName(text)) return text;
  throw new InvalidArgumentError(`Give ${DEVICE_NAME_ERROR}.`);
}

/** The kind of device, and the number of a CUDA device; null: the first that can be used. */
export function deviceNamed(name: DeviceName): { backend: 'auto' | 'cpu' | 'cuda'; device: number | null } {
  if (name === 'auto' || name === 'cpu' || name === 'cuda') return { backend: name, device: null };
  return { backend: 'cuda', device: Number(name.slice('cuda:'.length)) };
}
