import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { WEIGHT_DTYPES } from '../../shared/model/weight-dtype.js';

/** A tensor of a checkpoint and the file that holds it. */
export interface CheckpointTensor {
  name: string;
  /** As safetensors names it. */
  dtype: string;
  shape: readonly number[];
  path: string;
  /** Offset from the start of the file. */
  offsetBytes: number;
  sizeBytes: number;
}

export const ORIGINAL_CHECKPOINT = 'use the original checkpoint, as its makers ship it';

/** The error for a tensor whose type is not the expected one. */
export function foreignDtype(tensor: CheckpointTensor, supported: readonly string[]): OdmoeError {
  const { path, name, dtype } = tensor;
  const words = `${path}: tensor ${name} has dtype ${dtype}, supported are ${supported.join(', ')}${formOf(dtype)}`;
  return new OdmoeError('MODEL_UNSUPPORTED', `${words}; ${ORIGINAL_CHECKPOINT}`);
}

function formOf(dtype: string): string {
  if ((WEIGHT_DTYPES as readonly string[]).includes(dtype)) return '';
  return ' (quantized in a form that config.json does not say, or that is not read)';
}
