/** In the place of a file of API keys: main makes a key. A file of this name is written ./auto. */
export const AUTO_API_KEYS = 'auto';
/** The variable with API keys, with commas between them. */
export const KEYS_VARIABLE = 'ODMOE_API_KEYS';
