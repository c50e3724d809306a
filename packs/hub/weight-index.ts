import { z } from 'zod';

const indexSchema = z.looseObject({ weight_map: z.record(z.string(), z.string()) });

/** Names of the weight files in model.safetensors.index.json; null: it is not readable. Pure. */
export function indexedNames(bytes: Uint8Array): Set<string> | null {
  try {
    const { weight_map: files } = indexSchema.parse(JSON.parse(new TextDecoder().decode(bytes)));
    return new Set(Object.values(files));
  } catch {
    return null;
  }
}
