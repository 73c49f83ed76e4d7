export default { expoConfig: { extra: { eas: { projectId: "p-1" } } }, easConfig: null };
