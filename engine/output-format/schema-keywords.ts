import type { JsonType } from './json-schema.js';

/** Keywords that do not change which values a schema accepts, or that only describe it to people and other programs. */
const ANNOTATIONS: ReadonlySet<string> = new Set([
  'title',
  'description',
  'default',
  'example',
  'examples',
  '$schema',
  '$id',
  'id',
  '$anchor',
  '$comment',
  '$vocabulary',
  '$defs',
  'definitions',
  'components',
  'deprecated',
  'readOnly',
  'writeOnly',
  'strict',
  'contentEncoding',
  'contentMediaType',
  'contentSchema',
  'discriminator',
  'externalDocs',
  'xml',
  'propertyOrdering',
  'enumNames',
  'errorMessage',
  'markdownDescription',
]);

/** Keywords by the type of value that they restrict. */
export const KEYWORDS_OF_TYPE: Readonly<Record<JsonType, readonly string[]>> = {
  object: [
    'properties',
    'required',
    'additionalProperties',
    'patternProperties',
    'propertyNames',
    'minProperties',
    'maxProperties',
    'unevaluatedProperties',
  ],
  array: ['items', 'prefixItems', 'additionalItems', 'minItems', 'maxItems', 'uniqueItems'],
  string: ['minLength', 'maxLength', 'pattern'],
  number: ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'multipleOf'],
  boolean: [],
  null: [],
};
export const ALL_TYPES = Object.keys(KEYWORDS_OF_TYPE) as JsonType[];
/** `format` tells no type: there are formats of numbers, too. */
const TYPED_KEYWORDS: ReadonlySet<string> = new Set(['type', 'format', ...Object.values(KEYWORDS_OF_TYPE).flat()]);
const OTHER_KEYWORDS: ReadonlySet<string> = new Set([
  'enum',
  'const',
  'anyOf',
  'oneOf',
  'allOf',
  'not',
  'nullable',
  '$ref',
]);

/** True for `x-...` too, which OpenAPI leaves to everybody. */
export function isAnnotation(keyword: string): boolean {
  return ANNOTATIONS.has(keyword) || keyword.startsWith('x-');
}

export function isTypedKeyword(keyword: string): boolean {
  return TYPED_KEYWORDS.has(keyword);
}

export function isKnownKeyword(keyword: string): boolean {
  return isAnnotation(keyword) || isTypedKeyword(keyword) || OTHER_KEYWORDS.has(keyword);
}
